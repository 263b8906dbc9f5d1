/* Transfers: see transfer.h.
 *
 * Who makes a part of a wanted box is found along each axis of the mesh by itself: a cut axis by
 * bisection of its cut points, a copy axis by the copy that serves; partial axes all serve. The
 * work is in proportion to the messages, not to the square of the ranks.
 */
#include "plan/layout/transfer.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- the parts that serve one receiver ---- */

typedef struct receiver {
    int rank;
    int copy; /* that serves it */
    bool in_place;
    meg_box want;
} receiver;

typedef struct walk { /* row-major over the positions whose index on each axis is lo..hi-1 */
    const meg_mesh *mesh;
    int lo[MEG_MESH_AXES], hi[MEG_MESH_AXES], at[MEG_MESH_AXES];
} walk;

/* The first of dim intervals at[i]..at[i+1] that ends behind x; dim if none does. */
static int first_behind(const int64_t at[], int dim, int64_t x)
{
    int lo = 0, hi = dim;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (at[middle + 1] > x) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

/* The interval that holds x - 1 ends the range: the first that ends at x or behind. */
static int end_before(const int64_t at[], int dim, int64_t x)
{
    int i = first_behind(at, dim, x - 1);
    return i < dim ? i + 1 : dim;
}

static walk walk_of(const meg_layout *l, const receiver *to)
{
    walk w = {.mesh = l->mesh};
    int copy = to->copy;
    for (int m = MEG_MESH_AXES - 1; m >= 0; m--) {
        int dim = l->mesh->dim[m], axis = l->on[m].axis;
        w.lo[m] = 0, w.hi[m] = dim;
        if (l->on[m].how == MEG_SPLIT_COPY) {
            w.lo[m] = copy % dim, w.hi[m] = w.lo[m] + 1;
            copy /= dim;
        }
        if (l->on[m].how == MEG_SPLIT_CUT) {
            w.lo[m] = first_behind(l->on[m].at, dim, to->want.lo[axis]);
            w.hi[m] = end_before(l->on[m].at, dim, to->want.hi[axis]);
        }
    }
    return w;
}

static bool walk_first(walk *w)
{
    memcpy(w->at, w->lo, sizeof w->at);
    for (int m = 0; m < MEG_MESH_AXES; m++)
        if (w->lo[m] >= w->hi[m]) return false;
    return true;
}

static bool walk_next(walk *w)
{
    for (int m = MEG_MESH_AXES - 1; m >= 0; m--) {
        if (++w->at[m] < w->hi[m]) return true;
        w->at[m] = w->lo[m];
    }
    return false;
}

static int walk_position(const walk *w)
{
    int position = 0;
    for (int m = 0; m < MEG_MESH_AXES; m++)
        position = position * w->mesh->dim[m] + w->at[m];
    return position;
}

/* Returns how many messages; writes them unless out is NULL. Shares are numbered row-major, as the
 * walk goes: those of any one element ascend. */
static int64_t serve(const meg_layout *made, const receiver *to, meg_parcel *out)
{
    walk w = walk_of(made, to);
    int64_t messages = 0;
    int first = -1; /* share that is not empty: all its parts tile the value, so they set */
    if (meg_box_empty(&to->want)) return 0;
    for (bool on = walk_first(&w); on; on = walk_next(&w)) {
        int position = walk_position(&w), from = made->mesh->rank[position];
        meg_part part = meg_layout_part(made, position);
        meg_box box = meg_box_meet(part.work.out, to->want);
        if (meg_box_empty(&part.work.sum)) continue;
        if (first < 0) first = part.share;
        if (meg_box_empty(&box) || (to->in_place && from == to->rank)) continue;
        if (out) out[messages] = (meg_parcel){from, to->rank, part.share > first, box};
        messages++;
    }
    return messages;
}

/* ---- transfers ---- */

static receiver receiver_at(const meg_layout *made, const meg_held *held, const meg_box *want,
                            int position)
{
    int rank = held->mesh->rank[position], own = position;
    if (held->mesh != made->mesh) own = meg_mesh_find(made->mesh, rank);
    int copy = position % meg_layout_copies(made); /* spread over all */
    if (own >= 0) {
        meg_part part = meg_layout_part(made, own);
        assert(!held->in_place || meg_box_empty(want) || meg_box_holds(want, &part.work.out));
        copy = part.copy;
    }
    return (receiver){rank, copy, held->in_place, *want};
}

meg_transfer meg_transfer_some(meg_pool *pool, const meg_layout *made, const meg_held *held,
                               int first, int end)
{
    meg_transfer t = {.max = made->max};
    assert(!held->in_place || meg_layout_shares(made) == 1);
    for (int i = first; i < end; i++) {
        receiver to = receiver_at(made, held, &held->box[i - first], i);
        t.messages += serve(made, &to, NULL);
    }
    t.message = meg_pool_alloc(pool, (size_t)t.messages * sizeof *t.message);
    int64_t done = 0;
    for (int i = first; i < end; i++) {
        receiver to = receiver_at(made, held, &held->box[i - first], i);
        done += serve(made, &to, t.message + done);
    }
    return t;
}

meg_transfer meg_transfer_new(meg_pool *pool, const meg_layout *made, const meg_held *held)
{
    return meg_transfer_some(pool, made, held, 0, held->mesh->size);
}

meg_transfer meg_transfer_adjoint(meg_pool *pool, const meg_transfer *t)
{
    meg_transfer back = {.messages = t->messages};
    assert(!t->max);
    back.message = meg_pool_alloc(pool, (size_t)t->messages * sizeof *back.message);
    for (int64_t i = 0; i < t->messages; i++) {
        const meg_parcel *p = &t->message[i];
        back.message[i] = (meg_parcel){p->to, p->from, true, p->box};
    }
    return back;
}

/* ---- statistics, text ---- */

static void tally(meg_traffic *sum, const meg_parcel *p)
{
    int64_t elements = meg_box_size(&p->box);
    if (p->from == p->to) {
        sum->local += elements;
        return;
    }
    sum->messages++;
    sum->elements += elements;
}

meg_traffic meg_transfer_traffic(const meg_transfer *t)
{
    meg_traffic sum = {0};
    for (int64_t i = 0; i < t->messages; i++)
        tally(&sum, &t->message[i]);
    return sum;
}

void meg_transfer_by_rank(const meg_transfer *t, int ranks, meg_rank_traffic by[])
{
    memset(by, 0, (size_t)ranks * sizeof *by);
    for (int64_t i = 0; i < t->messages; i++) {
        const meg_parcel *p = &t->message[i];
        assert(p->from < ranks && p->to < ranks);
        tally(&by[p->from].sent, p);
        tally(&by[p->to].received, p);
    }
}

void meg_transfer_print(const meg_transfer *t, FILE *out)
{
    meg_traffic sum = meg_transfer_traffic(t);
    fprintf(out, "%" PRId64 " messages of %" PRId64 " elements, %" PRId64 " copied within a rank\n",
            sum.messages, sum.elements, sum.local);
    for (int64_t i = 0; i < t->messages; i++) {
        const meg_parcel *p = &t->message[i];
        char box[96];
        meg_box_text(&p->box, box);
        fprintf(out, "%d -> %d  %s %s\n", p->from, p->to,
                !p->add  ? "set"
                : t->max ? "max"
                         : "add",
                box);
    }
}
