/* Tags: what tells the messages of a step apart. All of them are numbered here, densely, from what every
 * rank knows of an entry; how many a plan needs is compared with how many the communicator has before the
 * first step (exec/engine.c).
 *
 *     0                              losses, while the next step runs: the same in all entries
 *     4 for each value that is       MEG_TAG_... below
 *       summed or gathered
 *     1 for each segment             running statistics
 *     2 x micro-batches for each     a value to another rank, then its gradient back; plus the
 *       exchange                     micro-batch
 */
#ifndef MEG_PLAN_PROGRAM_TAGS_H
#define MEG_PLAN_PROGRAM_TAGS_H

#include "plan/program/program.h"

enum {
    MEG_TAG_OUTCOME = 0, /* of losses */

    /* of a value that ranks make shares of; plus the direction */
    MEG_TAG_SUM = 0,
    MEG_TAG_SUM_BACK = 2, /* of its gradient */

    /* of a weight */
    MEG_TAG_GATHER = 0, /* its shards, for forward */
    MEG_TAG_GATHER_BACK = 1,
    MEG_TAG_GRADIENT = 2,       /* alone, or with those of its bucket, whose first it is */
    MEG_TAG_GATHER_UPDATED = 3, /* its parts, each updated by one rank */

    MEG_TAG_USES = 4
};

/* The value has a number (meg_entry.tag_number). */
int meg_tag_of_value(const meg_entry *e, int value, int use);
int meg_tag_of_states(const meg_entry *e, int segment);
int meg_tag_of_exchange(const meg_entry *e, int64_t number); /* -1: beyond all tags */

/* One more than the largest of this rank's messages. */
int meg_entry_tags(const meg_entry *e);

#endif
