/* Positions of a mesh, by hashes: two that have the same one make, read and hold parts of the same extents, which lie to one
 * another and to the borders of images alike, so that their programs are alike (classes.h).
 */
#ifndef MEG_PLAN_CLASSES_POSITIONS_H
#define MEG_PLAN_CLASSES_POSITIONS_H

#include "plan/program/plan.h"

enum {
    MEG_POSITION_BLOCK = 16 /* channels that formats put together */
};

/* Along pixels it counts on which sides the image ends, since kernels pad there. */
void meg_position_add_box(uint64_t *h, const meg_box *box, const meg_box *whole);

/* Of all nodes of a segment. */
uint64_t meg_position_sign(const meg_entry *e, int segment, int position);

/* What the first of several ranks has that are alike else: the copy that counts, the statistics. */
void meg_position_add_firsts(uint64_t *h, const meg_entry *e, int segment, int position);

#endif
