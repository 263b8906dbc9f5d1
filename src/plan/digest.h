/* The digest of a rank's events (events.h): 16 bytes by which a job of many ranks is compared without its lists.
 *
 *     order     of what the rank posts and waits for, and when: but for peers and for where boxes lie. Ranks of one
 *               class have the same one, so that what is proven of one of them (plan/proof.h) holds for all.
 *     balance   each message adds a number at its sender and takes the same one away at its receiver, each
 *               reduction at its ranks and, as often as there are, at its first. Numbers are made of who sends
 *               what to whom, element by element, and which of several it is.
 *               The sum over all ranks is 0 if all messages match; else, but for one case in 2^64, it is not.
 *
 *         rank 0   send a to 1   + h(0 > 1, a)
 *         rank 1   recv a        - h(0 > 1, a)   sum [a] with 2   + h(1 2, a) - 2 h(1 2, a)
 *         rank 2                                 sum [a] with 1   + h(1 2, a)
 *
 * (Multiset hashing: Clarke et al., Incremental multiset hash functions, ASIACRYPT 2003; nobody attacks this one.)
 */
#ifndef MEG_PLAN_DIGEST_H
#define MEG_PLAN_DIGEST_H

#include "plan/events/events.h"

typedef struct meg_digest {
    uint64_t order, balance;
} meg_digest;

/* The order of one list, whose sums are made with these teams. */
uint64_t meg_digest_order(const meg_events *v, int teams, const meg_team team[]);

/* Of all entries of a rank's plan; list[i] has the events of entry i, if it has samples. */
meg_digest meg_digest_of(const meg_plan *p, const meg_events list[MEG_ENTRIES]);

#endif
