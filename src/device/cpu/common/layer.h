/* What convolution and dense layers on the cpu share: which operands a pass means by x, y, weight
 * and bias, and which parts of a node they take.
 */
#ifndef MEG_DEVICE_CPU_COMMON_LAYER_H
#define MEG_DEVICE_CPU_COMMON_LAYER_H

#include "device/cpu/common/cpu.h"
#include "ops/attrs.h"

enum {
    MEG_CPU_THIN = 4 /* channels of x at most: convolution may take it in plain format */
};

typedef struct meg_cpu_role {
    bool known; /* the layer has this pass */
    int x, y, weight;
    int bias; /* -1: the pass has none */
} meg_cpu_role;

extern const meg_cpu_role meg_cpu_roles[MEG_PASSES];

/* A share of a sum that is not the first adds no bias, and its gradient of the bias is zero. */
bool meg_cpu_quiet(const meg_request *r);
/* Is the bias, if there is one and it counts, given for just the filters of the work? */
bool meg_cpu_biased(const meg_request *r, bool bias);

/* A part of a convolution in float: operands that cover just what its work needs (of x perhaps a rest
 * that no window reaches), and all taps. Sets the windows as they are
 * for this part: padding is only where the part touches the image's border. */
bool meg_cpu_windows(const meg_request *r, meg_window win[MEG_SPACE]);

static inline int64_t meg_round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

#endif
