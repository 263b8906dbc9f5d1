/* The search behind meg_partition_best. */
#ifndef MEG_PLAN_PARTITION_SEARCH_H
#define MEG_PLAN_PARTITION_SEARCH_H

#include "plan/partition/partition.h"

#include <stdbool.h>

/* The best stage of every piece; false: no cut keeps the limit. The question is sound, its flows
 * are sorted by value. */
bool meg_partition_search(const meg_cut *c, int stage[]);

/* The largest rank of the cut that is best by memory, without limit. */
int64_t meg_partition_least_bytes(meg_pool *pool, const meg_cut *c);

#endif
