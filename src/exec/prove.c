/* Proving a job: see prove.h. */
#include "exec/prove.h"
#include "plan/program/events.h"

#include <stdlib.h>

enum {
    TAG = 0
};

typedef struct size { /* what a rank's list needs */
    int32_t notes, steps, afters, members;
} size;

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

static meg_status take_lists(meg_comm *comm, meg_error *e, const size all[], meg_events list[])
{
    for (int r = 1; r < meg_comm_size(comm); r++) {
        meg_events *v = &list[r];
        *v = (meg_events){.rank = r,
                          .notes = all[r].notes,
                          .steps = all[r].steps,
                          .afters = all[r].afters,
                          .members = all[r].members};
        v->note = calloc((size_t)v->notes + 1, sizeof *v->note);
        v->step = calloc((size_t)v->steps + 1, sizeof *v->step);
        v->after = calloc((size_t)v->afters + 1, sizeof *v->after);
        v->member = calloc((size_t)v->members + 1, sizeof *v->member);
        if (!v->note || !v->step || !v->after || !v->member)
            return meg_fail(e, MEG_ENOMEM, "no memory for the messages of rank %d", r);
        MEG_TRY(e, move_list(comm, e, r, false, v));
    }
    return MEG_OK;
}

static meg_status prove_entry(meg_comm *comm, meg_error *e, const meg_plan *p, int entry)
{
    int ranks = meg_comm_size(comm), rank = meg_comm_rank(comm);
    meg_events *list = calloc((size_t)ranks, sizeof *list);
    size *all = calloc((size_t)ranks, sizeof *all);
    if (!list || !all) abort();
    meg_events_of(p, entry, &list[rank]);
    const meg_events *own = &list[rank];
    size mine = {own->notes, own->steps, own->afters, own->members};
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

meg_status meg_prove(meg_comm *comm, meg_error *e, const meg_plan *p)
{
    if (meg_comm_size(comm) == 1) return MEG_OK;
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) MEG_TRY(e, prove_entry(comm, e, p, i));
    return MEG_OK;
}
