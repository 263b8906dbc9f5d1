/* Classes of ranks: two ranks are of one class if their programs are equal but for peers, teams and where
 * boxes lie. Then what one needs the other needs, and one of each class is lowered for all.
 *
 *     4 x 4 tiles of an image, a halo around each      9 classes: corners, edges, the middle
 *
 *         a b b c
 *         d e e f      the edges differ by the side on which kernels pad
 *         d e e f
 *         g h h i
 *
 * It is arithmetic on layouts, not on programs: same stages, equal extents of part, halo, shard and
 * message of every value, same number of samples, same sides of the image. Replicas with as many samples
 * are looked at once, so that a job of thousands of replicas takes no longer. Where in doubt, ranks are
 * of different classes. (A class is known by a hash of 64 bits of all that.)
 */
#ifndef MEG_PLAN_CLASSES_CLASSES_H
#define MEG_PLAN_CLASSES_CLASSES_H

#include "plan/program/plan.h"

typedef struct meg_classes {
    meg_pool *pool;
    int ranks, count;
    int *of;           /* (ranks) */
    int *last;         /* (count) the last rank of each, which stands for it */
    int *size;         /* (count) how many ranks each has */
    int kinds;         /* of replicas: those of one kind cut their samples alike */
    int *kind;         /* (replicas) */
    int *replica;      /* (kinds) the first of each */
    uint64_t *samples; /* (kinds) a hash of how samples are cut: kinds may differ in shards alone */
    bool apart
        [MEG_ENTRIES]; /* no messages go from replica to replica; else each is a kind of its own */
} meg_classes;

meg_classes *meg_classes_new(const meg_plan *p); /* of any of the job's ranks */
void meg_classes_free(meg_classes *c);

#endif
