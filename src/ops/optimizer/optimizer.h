/* Optimizers: elementwise update rules, written once over `real` like the kernels of operators.
 * One file and one line in optimizers.def each. The format of the weight does not matter: padding
 * has zero gradient and stays zero.
 */
#ifndef MEG_OPS_OPTIMIZER_OPTIMIZER_H
#define MEG_OPS_OPTIMIZER_OPTIMIZER_H

#include "base/rule.h"

enum {
    MEG_OPTIMIZER_STATES = 2
};

typedef struct meg_scalars { /* what changes from step to step; one small slot, loaded each step */
    double lr;
    double step;  /* 1 for the first */
    double skip;  /* not 0: leave the weights alone */
    double scale; /* multiplies gradients; 1 */
} meg_scalars;

typedef struct meg_update { /* `count` elements of each; data is float or double */
    int64_t count;
    void *weight;
    const void *gradient;
    void *state[MEG_OPTIMIZER_STATES];
    const meg_scalars *scalars;
    const void *settings;
    bool decay; /* weight decay applies (all parameters do by default, as in PyTorch) */
} meg_update;

typedef struct meg_optimizer {
    const char *name, *doc, *paper;
    const meg_param *params;
    const meg_rule *rules; /* of words that have no effect, by the settings; NULL: none */
    size_t settings_bytes;
    double lr;  /* learning rate, unless given */
    int states; /* at most; `used` may be fewer for these settings (no momentum) */
    const char *state[MEG_OPTIMIZER_STATES]; /* their names in checkpoints: "momentum" */
    int (*used)(const void *settings);       /* NULL: all */
    bool relative; /* steps do not shrink with the gradient: what is zero must come as zero */
    void (*f32)(const meg_update *u);
    void (*f64)(const meg_update *u);
} meg_optimizer;

const meg_optimizer *meg_optimizer_find(const char *name);
const meg_optimizer *meg_optimizer_at(int i);
int meg_optimizer_states(const meg_optimizer *o, const void *settings);

#endif
