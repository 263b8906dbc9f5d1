/* Ranks that hold weights alike: see alike.h. */
#include "exec/alike.h"
#include "plan/events/events.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct holding { /* of a weight, by a rank */
    uint64_t box;        /* a hash of what it holds; 0: nothing */
    int64_t bytes;
    int32_t format, dtype;
} holding;

typedef struct table {
    const meg_graph *graph; /* of the plan's first entry */
    int ranks, values;      /* values: what nodes do not make, which has the first numbers */
    holding *all;           /* (ranks, values) */
    bool *plain;            /* (values) */
    int disagreed;          /* values, this time */
} table;

/* ---- what ranks hold ---- */

static uint64_t hash_box(const meg_box *box)
{
    return meg_elements_hash(box, MEG_U8, MEG_FORMAT_PLAIN, 0) | 1; /* not 0 */
}

static void list_held(const meg_plan *p, holding held[])
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *h = &p->held[i];
        const meg_value *v = &t->graph->value[h->value];
        if (v->kind != MEG_PARAMETER || h->role != MEG_ROLE_VALUE) continue;
        held[h->value] = (holding){.box = hash_box(&h->box),
                                   .bytes = h->bytes,
                                   .format = (int32_t)h->format,
                                   .dtype = (int32_t)meg_entry_dtype(t, v->dtype)};
    }
}

static const holding *held_by(const table *t, int rank, int value)
{
    return &t->all[(size_t)rank * (size_t)t->values + (size_t)value];
}

/* ---- who disagrees ---- */

static bool same(const holding *a, const holding *b)
{
    return a->format == b->format && a->bytes == b->bytes && a->dtype == b->dtype;
}

/* The lowest rank that holds the same of the value: one before this one, or itself. */
static int first_like(const table *t, int rank, int value)
{
    const holding *mine = held_by(t, rank, value);
    int r = 0;
    while (r < rank && held_by(t, r, value)->box != mine->box)
        r++;
    return r;
}

/* Then box and type say all: with parts of their own (zero=3), no two of a thousand ranks need be
 * compared. */
static bool all_plain(const table *t, int value)
{
    int32_t dtype = -1;
    for (int r = 0; r < t->ranks; r++) {
        const holding *h = held_by(t, r, value);
        if (h->box == 0) continue;
        if (dtype < 0) dtype = h->dtype;
        if (h->format != MEG_FORMAT_PLAIN || h->dtype != dtype) return false;
    }
    return true;
}

/* The two lowest ranks that disagree on the order of a value's elements, if any do. */
static bool find_unlike(const table *t, int value, int rank[2])
{
    if (all_plain(t, value)) return false;
    for (int r = 1; r < t->ranks; r++) {
        if (held_by(t, r, value)->box == 0) continue;
        rank[0] = first_like(t, r, value);
        rank[1] = r;
        if (!same(held_by(t, rank[0], value), held_by(t, r, value))) return true;
    }
    return false;
}

static void remember(const table *t, int value, const int rank[2], meg_alike *out)
{
    snprintf(out->value, sizeof out->value, "%s", t->graph->value[value].name);
    for (int i = 0; i < 2; i++) {
        out->rank[i] = rank[i];
        out->format[i] = (meg_format)held_by(t, rank[i], value)->format;
    }
}

static meg_status compare(table *t, meg_error *e, meg_alike *out)
{
    t->disagreed = 0;
    for (int i = 0; i < t->values; i++) {
        int rank[2];
        if (!find_unlike(t, i, rank)) continue;
        const holding *a = held_by(t, rank[0], i), *b = held_by(t, rank[1], i);
        MEG_CHECK(e, !t->plain[i], MEG_EUNSUPPORTED,
                  "ranks %d and %d hold %s as %s of %" PRId64 " bytes and as %s of %" PRId64
                  ", so that its gradient cannot be summed over them: use machines that are alike",
                  rank[0], rank[1], t->graph->value[i].name, meg_format_name((meg_format)a->format),
                  a->bytes, meg_format_name((meg_format)b->format), b->bytes);
        if (out->plain++ == 0) remember(t, i, rank, out);
        t->plain[i] = true;
        t->disagreed++;
    }
    return MEG_OK;
}

/* ---- planning ---- */

/* Plans, and finds what ranks disagree on. */
static meg_status plan_once(meg_comm *comm, meg_error *e, const meg_graph *g,
                            const meg_plan_input *in, meg_plan **out)
{
    *out = NULL;
    meg_status status = meg_plan_from(g, e, in, out);
    if (status == MEG_OK) meg_error_clear(e);
    return meg_comm_agree(comm, e);
}

static meg_status look(table *t, meg_comm *comm, meg_error *e, meg_alike *out)
{
    int64_t bytes = t->values * (int64_t)sizeof *t->all;
    size_t own = (size_t)t->values * (size_t)meg_comm_rank(comm);
    t->graph = out->plan->entry[MEG_ENTRY_TRAIN].graph;
    memset(t->all, 0, (size_t)t->ranks * (size_t)bytes);
    list_held(out->plan, t->all + own);
    MEG_TRY(e, meg_comm_gather(comm, e, t->all + own, bytes, t->all));
    return compare(t, e, out);
}

meg_status meg_plan_alike(meg_comm *comm, meg_error *e, const meg_graph *g,
                          const meg_plan_input *in, meg_alike *out)
{
    table t = {.ranks = meg_comm_size(comm)};
    meg_alike found = {0};
    meg_plan_input now = *in;
    if (t.ranks == 1) return meg_plan_from(g, e, in, &out->plan);
    for (int i = 0; i < g->values; i++)
        t.values += g->value[i].kind != MEG_MADE;
    t.all = calloc((size_t)t.ranks * ((size_t)t.values + 1), sizeof *t.all);
    now.plain = t.plain = calloc((size_t)g->values + 1, sizeof *t.plain);
    if (!t.all || !t.plain) abort();
    meg_status status = plan_once(comm, e, g, &now, &found.plan);
    if (status == MEG_OK) status = look(&t, comm, e, &found);
    while (status == MEG_OK && t.disagreed) { /* ends, since none becomes plain twice */
        meg_plan_destroy(found.plan);
        status = plan_once(comm, e, g, &now, &found.plan);
        if (status == MEG_OK) status = look(&t, comm, e, &found);
    }
    free(t.all);
    free(t.plain);
    if (status == MEG_OK) *out = found;
    else meg_plan_destroy(found.plan);
    return status;
}
