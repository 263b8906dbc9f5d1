/* What a message or a sum costs on a described machine: seconds when nothing else moves, and what it takes
 * meanwhile of things that others want, too.
 */
#ifndef MEG_PLAN_REPLAY_TRANSIT_H
#define MEG_PLAN_REPLAY_TRANSIT_H

#include "comm/allreduce/allreduce.h"
#include "machine/description.h"

typedef struct meg_transit {
    double latency; /* seconds, in which nothing is taken of anybody */
    double seconds; /* of moving and adding, behind the latency */
    /* While it moves: bytes a second that leave and enter the node, that stay inside a node, and cores that
     * a rank keeps busy with it. */
    double out, inside, cpu;
    double looks; /* how often a rank that has other work must look at it, until it is done */
} meg_transit;

static inline int meg_machine_node(const meg_machine *m, int rank)
{
    return rank / (int)m->ranks;
}

meg_transit meg_transit_message(const meg_machine *m, int from, int to, int64_t bytes);

typedef struct meg_transit_sum {
    const meg_allreduce_kind *kind;
    int ranks;
    const int *rank; /* (ranks), ascending */
    int64_t count, element_bytes;
    int64_t piece,
        pieces; /* bytes of a message at most; messages of a step that are under way at once */
} meg_transit_sum;

meg_transit meg_transit_of_sum(const meg_machine *m, const meg_transit_sum *s);

/* Sums of which it is known already: a step has the same few again and again. Empty: all zero. Of one machine;
 * lists of ranks are told apart by where they lie. */
typedef struct meg_transits {
    size_t count, room; /* a power of two; or 0 */
    struct meg_known_sum {
        meg_transit_sum sum; /* no kind: free */
        meg_transit costs;
    } * at;
} meg_transits;

meg_transit meg_transits_of_sum(meg_transits *t, const meg_machine *m, const meg_transit_sum *s);
void meg_transits_free(meg_transits *t);

#endif
