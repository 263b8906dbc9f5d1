/* The cut with the least memory where ranks have several stages. */
#ifndef MEG_PLAN_PARTITION_SHARED_H
#define MEG_PLAN_PARTITION_SHARED_H

#include "plan/partition/partition.h"

/* Improves the cut that `stage` has; returns the bytes of its largest rank. */
int64_t meg_partition_shared(const meg_cut *c, int stage[]);

#endif
