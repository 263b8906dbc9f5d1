/* Which values go from rank to rank: halos, and moves to other segments. They are numbered once for all
 * ranks, since tags count them.
 *
 * A mesh has an index along n for every replica, hundreds of them, but few kinds: parts of samples of equal
 * extents are alike but for where they lie. So a question about all positions is asked of some that tell,
 * and messages are looked for among positions with the same samples.
 */
#include "plan/distribute/distribute.h"

#include <stdlib.h>

/* ---- samples ---- */

/* Whole normalisation groups, if there are enough. */
const int64_t *meg_plan_samples(const meg_plan *p, int64_t count, int parts)
{
    int64_t norm = p->options.norm;
    return meg_cuts_even(p->pool, count, parts, norm && count / norm >= parts ? norm : 1);
}

static int inner_of(const meg_mesh *mesh)
{
    return mesh->size / mesh->dim[MEG_N];
}

/* The first and the last index, and one of each extent. */
static int list_telling(const int64_t cut[], int dim, int out[])
{
    int count = 0;
    for (int i = 0; i < dim; i++) {
        bool known = false;
        for (int k = 0; k < count && i < dim - 1; k++)
            known = known || cut[out[k] + 1] - cut[out[k]] == cut[i + 1] - cut[i];
        if (!known || i == dim - 1) out[count++] = i;
    }
    return count;
}

void meg_entry_find_samples(const meg_plan *p, meg_entry *e)
{
    size_t segments = (size_t)e->segments, all = 0;
    for (int i = 0; i < e->segments; i++)
        all += (size_t)meg_entry_mesh(e, 0, i)->dim[MEG_N];
    e->samples = meg_pool_alloc(p->pool, segments * sizeof *e->samples);
    e->telling_first = meg_pool_alloc(p->pool, (segments + 1) * sizeof *e->telling_first);
    e->telling = meg_pool_alloc(p->pool, all * sizeof *e->telling);
    for (int i = 0; i < e->segments; i++) {
        int dim = meg_entry_mesh(e, 0, i)->dim[MEG_N], first = e->telling_first[i];
        e->samples[i] = meg_plan_samples(p, e->graph->batch, dim);
        e->telling_first[i + 1] = first + list_telling(e->samples[i], dim, e->telling + first);
    }
}

/* ---- halos ---- */

meg_telling meg_telling_new(const meg_entry *e, int segment)
{
    int inner = inner_of(meg_entry_mesh(e, 0, segment));
    return (meg_telling){e, segment, e->telling_first[segment], inner, -1};
}

bool meg_telling_next(meg_telling *l, int *position)
{
    if (++l->within == l->inner) l->within = 0, l->at++;
    if (l->at == l->e->telling_first[l->segment + 1]) return false;
    *position = l->e->telling[l->at] * l->inner + l->within;
    return true;
}

static bool has_halo(const meg_entry *e, int value, int segment)
{
    int position;
    for (meg_telling l = meg_telling_new(e, segment); meg_telling_next(&l, &position);) {
        meg_box part = meg_entry_part(e, value, position).work.out;
        meg_box held = meg_entry_held(e, value, position);
        if (!meg_box_holds(&part, &held)) return true;
    }
    return false;
}

/* Does any position hold more of the value than its own samples, or is the value not cut by them? */
static bool mixes(const meg_entry *e, int value, int segment)
{
    int position, dim = meg_entry_mesh(e, 0, segment)->dim[MEG_N];
    if (dim > 1 && e->layout[value].on[MEG_N].how != MEG_SPLIT_CUT) return true;
    for (meg_telling l = meg_telling_new(e, segment); meg_telling_next(&l, &position);) {
        const int64_t *cut = &e->samples[segment][position / l.inner];
        meg_box held = meg_entry_held(e, value, position);
        if (!meg_box_empty(&held) && (held.lo[MEG_N] < cut[0] || held.hi[MEG_N] > cut[1]))
            return true;
    }
    return false;
}

void meg_entry_number_exchanges(const meg_plan *p, meg_entry *e)
{
    const meg_graph *g = e->graph;
    int number = 0;
    e->exchange_number = meg_pool_alloc(p->pool, ((size_t)g->values + 1) * sizeof(int));
    e->mixes = meg_pool_alloc(p->pool, (size_t)g->values + 1);
    for (int i = 0; i < g->values; i++)
        e->exchange_number[i] = -1;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].outputs; k++) {
            int y = g->node[i].out[k];
            bool moves = meg_is_move(&g->node[i]);
            if (!moves && (e->whole || e->made[y] || !has_halo(e, y, e->segment_of[i]))) continue;
            e->exchange_number[y] = number++;
            e->mixes[y] = mixes(e, y, e->segment_of[i]);
        }
}

/* ---- who is concerned ---- */

meg_positions meg_entry_peers(const meg_entry *e, int segment, int position)
{
    int inner = inner_of(meg_entry_mesh(e, 0, segment)), n = position / inner;
    return (meg_positions){.first = n * inner, .end = (n + 1) * inner};
}

meg_positions meg_entry_takers(const meg_entry *e, int from, int to, int position)
{
    int source = e->segment_of[e->graph->value[from].maker];
    int target = e->segment_of[e->graph->value[to].maker];
    const meg_mesh *mesh = meg_entry_mesh(e, 0, target);
    const int64_t *cut = e->samples[target];
    const int64_t *own = &e->samples[source][position / inner_of(meg_entry_mesh(e, 0, source))];
    bool cuts = e->layout[from].on[MEG_N].how == MEG_SPLIT_CUT ||
                meg_entry_mesh(e, 0, source)->dim[MEG_N] == 1;
    int lo = 0, hi = mesh->dim[MEG_N], inner = inner_of(mesh);
    if (e->mixes[to] || !cuts) return (meg_positions){.end = mesh->size};
    while (lo < hi - 1 && cut[lo + 1] <= own[0])
        lo++;
    while (hi > lo + 1 && cut[hi - 1] >= own[1])
        hi--;
    return (meg_positions){.first = lo * inner, .end = hi * inner};
}

/* ---- messages ---- */

/* The layout of a value after its shares have been summed. */
static meg_layout summed(const meg_entry *e, int value, int direction)
{
    meg_layout layout = e->layout[value];
    layout.mesh = meg_entry_mesh(e, direction, e->segment_of[e->graph->value[value].maker]);
    layout.whole.out = e->graph->value[value].shape;
    for (int a = 0; a < MEG_MESH_AXES; a++)
        if (layout.on[a].how == MEG_SPLIT_PARTIAL) layout.on[a].how = MEG_SPLIT_COPY;
    return layout;
}

meg_transfer meg_entry_transfer(meg_pool *pool, const meg_entry *e, int value, int direction,
                                meg_positions to)
{
    const meg_node *maker = &e->graph->node[e->graph->value[value].maker];
    bool moves = meg_is_move(maker);
    meg_layout made = summed(e, moves ? maker->in[0] : value, direction);
    meg_box *box = meg_pool_alloc(pool, (size_t)(to.end - to.first) * sizeof *box);
    meg_held held = {meg_entry_mesh(e, direction, e->segment_of[maker->id]), box, !moves};
    meg_box mine = {{0}, {0}};
    if (to.some && to.makes >= 0) mine = meg_layout_part(&made, to.makes).work.out;
    for (int i = to.first; i < to.end; i++) {
        meg_box held_there = meg_entry_held(e, value, i), both = meg_box_meet(held_there, mine);
        bool left_out = to.some && i != to.takes && meg_box_empty(&both);
        if (!left_out) box[i - to.first] = held_there;
    }
    return meg_transfer_some(pool, &made, &held, to.first, to.end);
}
