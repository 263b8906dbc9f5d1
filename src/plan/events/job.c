/* The check of a whole job: see events.h. First who belongs to whom, then a run in which nothing
 * takes time (rehearsal.h).
 */
#include "plan/events/rehearsal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct ref { /* a note of a rank */
    int rank, note;
    int nth; /* among those with the same key */
    const meg_traffic_note *n;
} ref;

typedef struct job {
    meg_error *e;
    const meg_graph *g;
    int ranks;
    const meg_events *list;
    int *first;   /* (ranks + 1) of its notes */
    int *partner; /* (notes) as rehearsal.h has it */
    int meetings;
    int *expected; /* (meetings): ranks of each */
} job;

static const char *name_at(const job *j, int value)
{
    return value >= 0 && value < j->g->values ? j->g->value[value].name : "gradients";
}

static const char *name_of(const job *j, const meg_traffic_note *n)
{
    return name_at(j, n->value);
}

/* ---- what does not lie alike ---- */

typedef struct unlike { /* a value that two ranks have in another order, or have other parts of */
    const char *name, *format[2];
} unlike;

/* Of buckets the first member that differs. */
static unlike find_unlike(const job *j, const ref *a, const ref *b)
{
    meg_member_note x = {a->n->value, a->n->format, 0}, y = {b->n->value, b->n->format, 0};
    int many = a->n->members < b->n->members ? a->n->members : b->n->members;
    for (int i = 0; i < many && x.what == y.what; i++) {
        x = j->list[a->rank].member[a->n->member + i];
        y = j->list[b->rank].member[b->n->member + i];
    }
    return (unlike){name_at(j, x.value),
                    {meg_format_name((meg_format)x.format), meg_format_name((meg_format)y.format)}};
}

/* ---- who belongs to whom ---- */

/* Sender, receiver and tag of a message; team and tag of a reduction. */
static int by_key(const void *a, const void *b)
{
    const ref *x = a, *y = b;
    bool rx = x->n->code == MEG_REDUCE, ry = y->n->code == MEG_REDUCE;
    if (rx != ry) return rx ? 1 : -1;
    int64_t kx[4] = {(int64_t)(x->n->team >> 1), x->n->tag, x->nth, 0};
    int64_t ky[4] = {(int64_t)(y->n->team >> 1), y->n->tag, y->nth, 0};
    if (!rx) {
        bool sx = x->n->code == MEG_SEND, sy = y->n->code == MEG_SEND;
        kx[0] = (int64_t)(sx ? x->rank : x->n->peer) << 32 | (sx ? x->n->peer : x->rank);
        ky[0] = (int64_t)(sy ? y->rank : y->n->peer) << 32 | (sy ? y->n->peer : y->rank);
        kx[3] = !sx;
        ky[3] = !sy;
    }
    for (int i = 0; i < 4; i++)
        if (kx[i] != ky[i]) return kx[i] < ky[i] ? -1 : 1;
    return x->rank - y->rank;
}

static bool same_key(const ref *x, const ref *y)
{
    if (x->n->tag != y->n->tag || x->nth != y->nth) return false;
    if (x->n->code == MEG_REDUCE || y->n->code == MEG_REDUCE)
        return x->n->code == y->n->code && x->n->team == y->n->team;
    return x->n->code != y->n->code && x->n->peer == y->rank && y->n->peer == x->rank;
}

/* Messages of one sender, receiver, tag and side are told apart by their order. */
static void number(ref *all, int count)
{
    qsort(all, (size_t)count, sizeof *all,
          by_key); /* nth is 0 everywhere: equal ones are neighbours */
    for (int i = 1; i < count; i++) {
        const meg_traffic_note *a = all[i - 1].n, *b = all[i].n;
        bool again = a->code == b->code && a->tag == b->tag && all[i - 1].rank == all[i].rank &&
                     (a->code == MEG_REDUCE ? a->team == b->team : a->peer == b->peer);
        all[i].nth = again ? all[i - 1].nth + 1 : 0;
    }
    qsort(all, (size_t)count, sizeof *all, by_key);
}

static meg_status sent_unlike(const job *j, const ref *a, const ref *b)
{
    unlike u = find_unlike(j, a, b);
    return meg_fail(
        j->e, MEG_EARG,
        "the plan is broken: rank %d sends %s of micro-batch %d in another order, or another part "
        "of it, than rank %d expects: as %s, not as %s",
        a->rank, u.name, a->n->micro, b->rank, u.format[0], u.format[1]);
}

static meg_status match_message(job *j, const ref *a, const ref *b)
{
    bool pair = b && same_key(a, b) && a->n->code == MEG_SEND;
    bool send = a->n->code == MEG_SEND;
    MEG_CHECK(
        j->e, pair, MEG_EARG,
        "the plan is broken: rank %d %s %s of micro-batch %d %s rank %d, which does not %s it",
        a->rank, send ? "sends" : "expects", name_of(j, a->n), a->n->micro, send ? "to" : "from",
        a->n->peer, send ? "expect" : "send");
    MEG_CHECK(j->e, a->n->bytes == b->n->bytes, MEG_EARG,
              "the plan is broken: rank %d sends %" PRId64 " bytes of %s, but rank %d expects "
              "%" PRId64,
              a->rank, a->n->bytes, name_of(j, a->n), b->rank, b->n->bytes);
    if (a->n->what != b->n->what) return sent_unlike(j, a, b);
    int from = j->first[a->rank] + a->note, to = j->first[b->rank] + b->note;
    j->partner[from] = to;
    j->partner[to] = from;
    return MEG_OK;
}

/* Returns how many belong together. */
static int match_meeting(job *j, const ref *all, int count)
{
    int many = 1;
    while (many < count && same_key(&all[0], &all[many]))
        many++;
    for (int i = 0; i < many; i++)
        j->partner[j->first[all[i].rank] + all[i].note] = j->meetings;
    j->expected[j->meetings++] = all[0].n->peer;
    return many;
}

static meg_status summed_unlike(const job *j, const ref *a, const ref *b)
{
    unlike u = find_unlike(j, a, b);
    return meg_fail(
        j->e, MEG_EARG,
        "the plan is broken: ranks %d and %d sum up %s of micro-batch %d, but one has the elements "
        "in another order, or others: as %s and as %s",
        a->rank, b->rank, u.name, a->n->micro, u.format[0], u.format[1]);
}

static meg_status check_meeting(job *j, const ref *all, int many)
{
    for (int i = 0; i < many; i++)
        MEG_CHECK(j->e, all[i].n->how == all[0].n->how, MEG_EARG,
                  "the plan is broken: ranks %d and %d shall sum up %s of micro-batch %d, but one "
                  "sums and the other gathers, or takes the largest",
                  all[0].rank, all[i].rank, name_of(j, all[0].n), all[0].n->micro);
    for (int i = 0; i < many; i++)
        MEG_CHECK(j->e, all[i].n->micro == all[0].n->micro, MEG_EARG,
                  "the plan is broken: ranks %d and %d sum up %s of micro-batches %d and %d",
                  all[0].rank, all[i].rank, name_of(j, all[0].n), all[0].n->micro, all[i].n->micro);
    for (int i = 0; i < many; i++)
        MEG_CHECK(j->e, all[i].n->bytes == all[0].n->bytes, MEG_EARG,
                  "the plan is broken: ranks %d and %d sum up %s with %" PRId64 " and %" PRId64
                  " bytes",
                  all[0].rank, all[i].rank, name_of(j, all[0].n), all[0].n->bytes, all[i].n->bytes);
    for (int i = 0; i < many; i++)
        if (all[i].n->what != all[0].n->what) return summed_unlike(j, &all[0], &all[i]);
    MEG_CHECK(j->e, many == all[0].n->peer, MEG_EARG,
              "the plan is broken: %d ranks shall sum up %s of micro-batch %d, but only %d do, "
              "among them rank %d",
              all[0].n->peer, name_of(j, all[0].n), all[0].n->micro, many, all[0].rank);
    return MEG_OK;
}

static meg_status match(job *j, ref *all, int count)
{
    number(all, count);
    for (int i = 0; i < count;) {
        if (all[i].n->code != MEG_REDUCE) {
            MEG_TRY(j->e, match_message(j, &all[i], i + 1 < count ? &all[i + 1] : NULL));
            i += 2;
            continue;
        }
        int many = match_meeting(j, &all[i], count - i);
        MEG_TRY(j->e, check_meeting(j, &all[i], many));
        i += many;
    }
    return MEG_OK;
}

/* ---- the run ---- */

meg_status meg_stuck(meg_error *e, const char *name, int rank, const meg_traffic_note *n)
{
    static const char *const how[] = {"sends", "waits for", "sums up"};
    return meg_fail(e, MEG_EARG,
                    "the plan would hang: rank %d %s %s of micro-batch %d (%s %d), and nothing "
                    "goes on",
                    rank, how[n->code - MEG_SEND], name, n->micro,
                    n->code == MEG_REDUCE ? "ranks:" : "other rank", n->peer);
}

static meg_status run(job *j, meg_pool *pool)
{
    int at;
    size_t ranks = (size_t)j->ranks;
    meg_packed *packed = meg_pool_alloc(pool, ranks * sizeof *packed);
    const meg_packed **lists = meg_pool_alloc(pool, ranks * sizeof *lists);
    for (int r = 0; r < j->ranks; r++) {
        meg_packed_make(&j->list[r], &packed[r]);
        lists[r] = &packed[r];
    }
    meg_rehearsal all = {j->ranks, lists, j->first, j->partner, j->meetings, j->expected};
    int rank = meg_rehearsal_stuck(&all, &at);
    for (int r = 0; r < j->ranks; r++)
        meg_packed_clear(&packed[r]);
    if (rank < 0) return MEG_OK;
    const meg_traffic_note *n = &j->list[rank].note[-1 - j->list[rank].step[at]];
    return meg_stuck(j->e, name_of(j, n), rank, n);
}

meg_status meg_job_check(meg_error *e, const meg_graph *g, int ranks, const meg_events list[])
{
    meg_pool *pool = meg_pool_new();
    size_t many = (size_t)ranks + 1;
    job j = {.e = e, .g = g, .ranks = ranks, .list = list};
    j.first = meg_pool_alloc(pool, many * sizeof *j.first);
    for (int r = 0; r < ranks; r++)
        j.first[r + 1] = j.first[r] + list[r].notes;
    int count = j.first[ranks];
    ref *all = meg_pool_alloc(pool, ((size_t)count + 1) * sizeof *all);
    j.partner = meg_pool_alloc(pool, ((size_t)count + 1) * sizeof(int));
    j.expected = meg_pool_alloc(pool, ((size_t)count + 1) * sizeof(int));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < list[r].notes; i++)
            all[j.first[r] + i] = (ref){r, i, 0, &list[r].note[i]};
    meg_status status = match(&j, all, count);
    if (status == MEG_OK) status = run(&j, pool);
    meg_pool_free(pool);
    return status;
}
