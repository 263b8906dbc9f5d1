/* What convolution and dense layers on the cpu share: which operands a pass means by x, y, weight
 * and bias, and whether a request covers the whole node.
 */
#ifndef MEG_DEVICE_CPU_LAYER_H
#define MEG_DEVICE_CPU_LAYER_H

#include "device/cpu.h"

enum {
    MEG_CPU_THIN = 4 /* channels of x at most: convolution may take it in plain format */
};

typedef struct meg_cpu_role {
    bool known; /* the layer has this pass */
    int x, y, weight;
    int bias; /* -1: the pass has none */
} meg_cpu_role;

extern const meg_cpu_role meg_cpu_roles[MEG_PASSES];

/* All of the node in float, but for samples: a part of an image would come with halos, a part of
 * the sum without bias. */
bool meg_cpu_covers(const meg_request *r);

static inline int64_t meg_round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

#endif
