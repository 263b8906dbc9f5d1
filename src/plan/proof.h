/* The proof by classes that nobody waits for ever: what meg_job_check (program/events.h) proves of all
 * ranks' programs, from the programs of one rank of each class.
 *
 * One replica of each kind (classes.h) is run, rank by rank, each with the list of events of its class. Whom a
 * message goes to follows from the layouts, as it does when a rank is lowered; who takes part in a sum is
 * known by its ranks within a replica and by whether it is one replica's or all replicas'. Replicas of one
 * kind do the same at the same time, so what holds for one of each holds for all. Classes that differ in what
 * no message shows (shards of other extents) share a list; kinds that cut samples alike and share all lists are one here.
 *
 *     meg_proof *q = meg_proof_new(classes);
 *     for the last rank of each class: meg_proof_add(q, its plan);
 *     status = meg_proof_check(q, error, any plan);
 */
#ifndef MEG_PLAN_PROOF_H
#define MEG_PLAN_PROOF_H

#include "plan/classes/classes.h"
#include "plan/events/packed.h"

typedef struct meg_witness { /* of a class, in an entry */
    meg_packed list;         /* its events */
    int teams;
    meg_team *team; /* how they are made, not their ranks */
    uint64_t order; /* of both (digest.h) */
    bool shared;    /* the list is another class's, which has the same */
} meg_witness;

typedef struct meg_proof {
    meg_pool *pool;
    const meg_classes *classes;
    meg_witness *witness[MEG_ENTRIES]; /* (classes) */
} meg_proof;

meg_proof *meg_proof_new(const meg_classes *c);
void meg_proof_add(meg_proof *q, const meg_plan *p);
/* The events of a class, whose teams are there: if another has the same in all that counts, it takes those. */
void meg_proof_keep(meg_proof *q, int entry, int class, const meg_events *v);
/* The error names ranks, values and micro-batches. */
meg_status meg_proof_check(const meg_proof *q, meg_error *e, const meg_plan *p);
void meg_proof_free(meg_proof *q);

#endif
