/* The soft Dice loss: what the fused operator and its phases have in common.
 *
 *     1 - (2 sum of p t + epsilon) / (sum of p + sum of t + epsilon)
 *
 * of each sample and class, p the class's probability and t 1 where it is the label, summed over
 * the pixels that count. The loss is the mean over samples and classes, a sample weighing as much
 * as it has pixels that count: so shares of the batch add up over `count` (label_count), and
 * samples without labels have none. One logit alone (mode=sigmoid) tells label 1, the object, from
 * label 0, around it, and the loss is that of the object. Sums are stored as (n, c, 1, 1, MEG_DICE_SUMS).
 */
#ifndef MEG_OPS_LOSS_DICE_H
#define MEG_OPS_LOSS_DICE_H

#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    MEG_DICE_BOTH,  /* sum of p t */
    MEG_DICE_ALL,   /* sum of p + t */
    MEG_DICE_COUNT, /* pixels */
    MEG_DICE_SUMS
};

extern const meg_param meg_dice_params[];

static inline real *meg_dice_at(const meg_array *sums, int64_t n, int64_t k)
{
    return meg_real_at(sums, (const int64_t[MEG_AXES]){n, k, 0, 0, 0});
}

static inline bool meg_dice_counts(const meg_dice_attr *a, int64_t label, int64_t classes)
{
    return label >= 0 && label < (classes == 1 ? 2 : classes) && label != a->ignore;
}

/* Whether a pixel of this label belongs to class k. */
static inline bool meg_dice_hit(int64_t label, int64_t k, int64_t classes)
{
    return label == (classes == 1 ? 1 : k);
}

/* The loss of a sample and class, times its pixels. */
static inline double meg_dice_loss(const meg_dice_attr *a, const real *sums)
{
    double all = (double)sums[MEG_DICE_ALL] + a->epsilon;
    double both = 2 * (double)sums[MEG_DICE_BOTH] + a->epsilon;
    return (double)sums[MEG_DICE_COUNT] * (1 - both / all);
}

/* Its derivative with respect to each of the sums. */
static inline void meg_dice_slopes(const meg_dice_attr *a, const real *sums,
                                   double out[MEG_DICE_SUMS])
{
    double all = (double)sums[MEG_DICE_ALL] + a->epsilon, pixels = (double)sums[MEG_DICE_COUNT];
    double both = 2 * (double)sums[MEG_DICE_BOTH] + a->epsilon;
    out[MEG_DICE_BOTH] = -2 * pixels / all;
    out[MEG_DICE_ALL] = pixels * both / (all * all);
    out[MEG_DICE_COUNT] = 1 - both / all;
}

#endif
