/* Which weights are trained: chosen by patterns over their names.
 *
 *     freeze "layer1.*,bn1.weight"     parameters become fixed: no gradient, no optimizer state
 *     train  "mean"                    what is fixed becomes a parameter
 *
 * Patterns are those of file names (*, ?, [..]), separated by commas. One that no weight has is an
 * error, which names the nearest; so is one that has no effect on what is learned: `train` of weights
 * that are trained anyway, `freeze` of weights all of which `train` names, too. Running statistics stay
 * what they are.
 */
#ifndef MEG_GRAPH_FREEZE_H
#define MEG_GRAPH_FREEZE_H

#include "graph/graph.h"

typedef struct meg_freezing {
    const char *freeze, *train; /* patterns; `train` wins */
    const bool *doubtful;       /* (values) trained by a guess, which `train` settles; NULL: none */
} meg_freezing;

meg_status meg_graph_choose(meg_graph *g, meg_error *e, const meg_freezing *c);

/* One without the other. */
meg_status meg_graph_freeze_names(meg_graph *g, meg_error *e, const char *patterns);
meg_status meg_graph_train_names(meg_graph *g, meg_error *e, const char *patterns);

bool meg_names_match(const char *patterns, const char *name); /* does one of them? */

#endif
