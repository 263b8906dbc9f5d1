/* Proving a job: see prove.h. */
#include "exec/prove.h"
#include "base/random.h"
#include "plan/digest.h"
#include "plan/proof.h"

#include <stdlib.h>

enum {
    TAG = 0,
    FEW = 16 /* ranks whose lists rank 0 takes as they are */
};

typedef struct size { /* what a rank's list needs */
    int32_t notes, steps, afters, members, teams;
} size;

typedef struct seal { /* what ranks compare */
    meg_digest digest;
    uint64_t classes; /* of the table of classes */
} seal;

/* ---- lists ---- */

static meg_status move(meg_comm *comm, meg_error *e, int peer, bool send, void *data, int64_t bytes)
{
    meg_letter *m = NULL;
    if (bytes == 0) return MEG_OK;
    if (send) MEG_TRY(e, meg_comm_send(comm, e, peer, TAG, data, bytes, &m));
    else MEG_TRY(e, meg_comm_recv(comm, e, peer, TAG, data, bytes, &m));
    return meg_comm_wait(comm, e, &m);
}

static meg_status move_list(meg_comm *comm, meg_error *e, int peer, bool send, meg_events *v)
{
    MEG_TRY(e, move(comm, e, peer, send, v->note, v->notes * (int64_t)sizeof *v->note));
    MEG_TRY(e, move(comm, e, peer, send, v->step, v->steps * (int64_t)sizeof *v->step));
    MEG_TRY(e, move(comm, e, peer, send, v->after, v->afters * (int64_t)sizeof *v->after));
    return move(comm, e, peer, send, v->member, v->members * (int64_t)sizeof *v->member);
}

static size size_of(const meg_events *v, int teams)
{
    return (size){v->notes, v->steps, v->afters, v->members, teams};
}

static meg_status take_list(meg_comm *comm, meg_error *e, int from, const size *s, meg_events *v)
{
    *v = (meg_events){.rank = from,
                      .notes = s->notes,
                      .steps = s->steps,
                      .afters = s->afters,
                      .members = s->members};
    v->note = calloc((size_t)v->notes + 1, sizeof *v->note);
    v->step = calloc((size_t)v->steps + 1, sizeof *v->step);
    v->after = calloc((size_t)v->afters + 1, sizeof *v->after);
    v->member = calloc((size_t)v->members + 1, sizeof *v->member);
    if (!v->note || !v->step || !v->after || !v->member)
        return meg_fail(e, MEG_ENOMEM, "no memory for the messages of rank %d", from);
    return move_list(comm, e, from, false, v);
}

/* ---- all lists ---- */

static meg_status take_lists(meg_comm *comm, meg_error *e, const size all[], meg_events list[])
{
    for (int r = 1; r < meg_comm_size(comm); r++)
        MEG_TRY(e, take_list(comm, e, r, &all[r], &list[r]));
    return MEG_OK;
}

static meg_status prove_entry(meg_comm *comm, meg_error *e, const meg_plan *p, int entry)
{
    int ranks = meg_comm_size(comm), rank = meg_comm_rank(comm);
    meg_events *list = calloc((size_t)ranks, sizeof *list);
    size *all = calloc((size_t)ranks, sizeof *all);
    if (!list || !all) abort();
    meg_events_of(p, entry, &list[rank]);
    size mine = size_of(&list[rank], 0);
    meg_status status = meg_comm_gather(comm, e, &mine, sizeof mine, all);
    if (status == MEG_OK && rank > 0) status = move_list(comm, e, 0, true, &list[rank]);
    if (status == MEG_OK && rank == 0) {
        status = take_lists(comm, e, all, list);
        if (status == MEG_OK) status = meg_job_check(e, p->entry[entry].graph, ranks, list);
    }
    for (int r = 0; r < ranks; r++)
        meg_events_clear(&list[r]);
    free(list);
    free(all);
    if (status == MEG_OK) meg_error_clear(e);
    return meg_comm_agree(comm, e);
}

static meg_status prove_all(meg_comm *comm, meg_error *e, const meg_plan *p)
{
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) MEG_TRY(e, prove_entry(comm, e, p, i));
    return MEG_OK;
}

/* ---- by classes ---- */

static meg_status compare(meg_comm *comm, meg_error *e, const meg_classes *c, const seal *mine,
                          bool *same)
{
    seal *all = calloc((size_t)c->ranks, sizeof *all);
    uint64_t sum = 0;
    if (!all) abort();
    meg_status status = meg_comm_gather(comm, e, mine, sizeof *mine, all);
    *same = status == MEG_OK;
    for (int r = 0; r < c->ranks && status == MEG_OK; r++) {
        const seal *witness = &all[c->last[c->of[r]]];
        *same = *same && all[r].classes == mine->classes &&
                all[r].digest.order == witness->digest.order;
        sum += all[r].digest.balance;
    }
    *same = *same && sum == 0;
    free(all);
    return status;
}

static meg_status give_witness(meg_comm *comm, meg_error *e, const meg_plan *p, meg_events list[])
{
    for (int i = 0; i < MEG_ENTRIES; i++) {
        const meg_entry *t = &p->entry[i];
        size s = size_of(&list[i], t->teams);
        if (t->batch == 0) continue;
        MEG_TRY(e, move(comm, e, 0, true, &s, sizeof s));
        MEG_TRY(e, move_list(comm, e, 0, true, &list[i]));
        MEG_TRY(e, move(comm, e, 0, true, t->team, s.teams * (int64_t)sizeof *t->team));
    }
    return MEG_OK;
}

static meg_status take_witness(meg_comm *comm, meg_error *e, const meg_plan *p, meg_proof *q,
                               int class)
{
    int from = q->classes->last[class];
    for (int i = 0; i < MEG_ENTRIES; i++) {
        meg_witness *w = &q->witness[i][class];
        meg_events v;
        size s;
        if (p->entry[i].batch == 0) continue;
        MEG_TRY(e, move(comm, e, from, false, &s, sizeof s));
        w->teams = s.teams;
        w->team = meg_pool_alloc(q->pool, ((size_t)s.teams + 1) * sizeof *w->team);
        meg_status status = take_list(comm, e, from, &s, &v);
        if (status == MEG_OK)
            status = move(comm, e, from, false, w->team, s.teams * (int64_t)sizeof *w->team);
        for (int k = 0; k < s.teams; k++)
            w->team[k].rank = NULL; /* an address of that rank */
        if (status == MEG_OK) meg_proof_keep(q, i, class, &v);
        meg_events_clear(&v);
        MEG_TRY(e, status);
    }
    return MEG_OK;
}

/* On rank 0. What is wrong, if anything is, the proof of all ranks says better. */
static meg_status rehearse(meg_comm *comm, meg_error *e, const meg_plan *p, const meg_classes *c,
                           bool *sound)
{
    meg_proof *q = meg_proof_new(c);
    meg_error unsaid = {0};
    meg_status status = MEG_OK;
    for (int k = 0; k < c->count && status == MEG_OK; k++) {
        if (c->last[k] == 0) meg_proof_add(q, p);
        else status = take_witness(comm, e, p, q, k);
    }
    if (status == MEG_OK) *sound = meg_proof_check(q, &unsaid, p) == MEG_OK;
    meg_proof_free(q);
    return status;
}

/* Ranks of one class have one order, all messages match, and one rank of each class proves that nobody waits for
 * ever. Where any of that is not so, `proven` stays false: then lists tell what it is. */
static meg_status prove_classes(meg_comm *comm, meg_error *e, const meg_plan *p,
                                const meg_classes *c, bool *proven)
{
    meg_events list[MEG_ENTRIES] = {0};
    int rank = meg_comm_rank(comm);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) meg_events_of(p, i, &list[i]);
    seal mine = {meg_digest_of(p, list),
                 meg_hash_bytes(meg_hash("classes"), c->of, (size_t)c->ranks * sizeof *c->of)};
    bool same = false;
    meg_status status = compare(comm, e, c, &mine, &same);
    if (status == MEG_OK && same) {
        if (rank == 0) status = rehearse(comm, e, p, c, proven);
        else if (c->last[c->of[rank]] == rank) status = give_witness(comm, e, p, list);
        if (status == MEG_OK) meg_error_clear(e);
        status = meg_comm_agree(comm, e);
        if (status == MEG_OK) status = meg_comm_share(comm, e, 0, proven, sizeof *proven);
    }
    for (int i = 0; i < MEG_ENTRIES; i++)
        meg_events_clear(&list[i]);
    return status;
}

meg_status meg_prove(meg_comm *comm, meg_error *e, const meg_plan *p)
{
    int ranks = meg_comm_size(comm);
    bool proven = false;
    if (ranks == 1) return MEG_OK;
    if (ranks > FEW) {
        meg_classes *c = meg_classes_new(p);
        meg_status status = prove_classes(comm, e, p, c, &proven);
        meg_classes_free(c);
        MEG_TRY(e, status);
    }
    return proven ? MEG_OK : prove_all(comm, e, p);
}
