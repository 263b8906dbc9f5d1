/* Wide halos: one exchange for several layers.
 *
 * With wide=2 a rank receives every second halo only, twice as wide, and makes those between itself:
 *
 *     wide=1   a ==1==> conv b ==1==> conv c       ==1==>: a message from each neighbour, 1 pixel wide
 *     wide=2   a ==2==> conv b ------> conv c      b is made with its halo: those pixels, twice
 *
 * (Jain et al., Hy-Fi, ISC 2022: halo-D2.) What is made lies within the image, so that kernels pad as
 * they always do. What is made twice has two gradients, and each is a share: the sum of all that is
 * sent back is right. Sums over pixels read parts alone.
 *
 * Which values are exchanged? From the last node back, `depth` counts the halos in a row that a value
 * would have to be made with. Where it exceeds `wide`, the fewest values are chosen without which
 * nothing that is too deep leads to a halo further on: behind a residual block its sum, not the inputs
 * of its convolutions, past which the sum of the block before would still have to grow.
 */
#include "plan/distribute/distribute.h"
#include "plan/layout/mincut.h"

typedef struct edge { /* a node reads another's value, within a segment */
    int to;
    bool halo; /* more than the part */
} edge;

typedef struct widener {
    const meg_entry *e;
    meg_pool *pool;
    int nodes;
    int *first; /* (nodes + 1) */
    edge *edge;
    bool *grows; /* can a rank make more of it than its part, and is it not exchanged? */
    int *depth;
    int64_t most;
} widener;

/* ---- what there is ---- */

static bool has_halo(const meg_entry *e, const meg_node *reader, int value)
{
    int position;
    for (meg_telling l = meg_telling_new(e, e->segment_of[reader->id]);
         meg_telling_next(&l, &position);) {
        meg_box part = meg_entry_part(e, value, position).work.out;
        meg_box need = meg_entry_need(e, reader, value, position);
        if (!meg_box_holds(&part, &need)) return true;
    }
    return false;
}

/* More than the part's pixels? */
static bool beyond(const meg_box *part, const meg_box *need)
{
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (need->lo[a] < part->lo[a] || need->hi[a] > part->hi[a]) return true;
    return false;
}

/* Does it put together channels that are cut, of just its own pixels? With a halo it would want them of
 * all neighbours as well: more messages than the one for its own halo. */
static bool gathers(const meg_entry *e, const meg_node *v)
{
    int position;
    for (int k = 0; k < v->inputs; k++) {
        int x = v->in[k], maker = e->graph->value[x].maker;
        meg_telling l = meg_telling_new(e, e->segment_of[v->id]);
        bool halo = maker < 0 || e->segment_of[maker] != e->segment_of[v->id] ||
                    e->layout[x].on[MEG_C].how != MEG_SPLIT_CUT;
        while (!halo && meg_telling_next(&l, &position)) {
            meg_box part = meg_entry_part(e, x, position).work.out;
            meg_box need = meg_entry_need(e, v, x, position);
            halo = beyond(&part, &need);
        }
        if (!halo) return true;
    }
    return false;
}

/* Not of a sum over ranks; and who lacks channels lacks the weights to make them. */
static bool can_grow(const meg_entry *e, const meg_node *v)
{
    const meg_layout *l = &e->layout[v->out[0]];
    if (meg_is_move(v) || v->outputs > 1 || meg_entry_partial(e, v->out[0])) return false;
    if (l->on[MEG_C].how == MEG_SPLIT_CUT) return false;
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (l->on[a].how == MEG_SPLIT_CUT && v->op->grain && v->op->grain(e->graph, v, a) != 1)
            return false;
    return !gathers(e, v);
}

static void find_edges(widener *x)
{
    const meg_entry *e = x->e;
    const meg_graph *g = e->graph;
    int count = 0;
    x->nodes = g->nodes;
    x->first = meg_pool_alloc(x->pool, ((size_t)g->nodes + 1) * sizeof *x->first);
    x->edge = meg_pool_alloc(x->pool, ((size_t)e->reader_first[g->values] + 1) * sizeof *x->edge);
    x->grows = meg_pool_alloc(x->pool, (size_t)g->nodes + 1);
    x->depth = meg_pool_alloc(x->pool, ((size_t)g->nodes + 1) * sizeof *x->depth);
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        x->grows[i] = can_grow(e, v);
        x->first[i] = count;
        for (int k = 0; k < v->outputs && !meg_is_move(v); k++)
            for (int r = e->reader_first[v->out[k]]; r < e->reader_first[v->out[k] + 1]; r++) {
                int to = e->reader[r];
                if (e->segment_of[to] != e->segment_of[i]) continue;
                x->edge[count++] = (edge){to, has_halo(e, &g->node[to], v->out[k])};
            }
    }
    x->first[g->nodes] = count;
}

/* ---- how deep ---- */

/* Of what a reader asks for: its own halos, and one more. */
static int depth_of(const widener *x, const edge *r)
{
    return (x->grows[r->to] ? x->depth[r->to] : 0) + r->halo;
}

static bool count_halos(widener *x)
{
    bool too_deep = false;
    for (int i = x->nodes - 1; i >= 0; i--) {
        x->depth[i] = 0;
        for (const edge *r = x->edge + x->first[i]; r < x->edge + x->first[i + 1]; r++)
            if (depth_of(x, r) > x->depth[i]) x->depth[i] = depth_of(x, r);
        too_deep = too_deep || (x->grows[i] && x->depth[i] > x->most);
    }
    return too_deep;
}

/* ---- who is exchanged ---- */

/* A vertex before each node and one behind; an edge through the node where it grows. */
static int before(int node)
{
    return 2 * node;
}

static int behind(int node)
{
    return 2 * node + 1;
}

/* What is too deep, but asked for less by those that are not, may be exchanged for their sake. */
static bool may_cut(const widener *x, int node)
{
    for (const edge *r = x->edge + x->first[node]; r < x->edge + x->first[node + 1]; r++)
        if (x->depth[r->to] <= x->most && depth_of(x, r) > x->most) return false;
    return true;
}

static void add_node(const widener *x, meg_mincut *f, int node, int from, int to)
{
    bool deep = x->depth[node] > x->most;
    if (!x->grows[node] || x->depth[node] == 0) return;
    meg_mincut_arc(f, before(node), behind(node), may_cut(x, node) ? 1 : MEG_MINCUT_ANY);
    if (deep) meg_mincut_arc(f, from, before(node), MEG_MINCUT_ANY);
    for (const edge *r = x->edge + x->first[node]; r < x->edge + x->first[node + 1]; r++) {
        bool grows = x->grows[r->to] && x->depth[r->to] > 0;
        if (grows && !(deep && x->depth[r->to] > x->most))
            meg_mincut_arc(f, behind(node), before(r->to), MEG_MINCUT_ANY);
        if (r->halo && !deep) meg_mincut_arc(f, behind(node), to, MEG_MINCUT_ANY);
    }
}

static void exchange_some(widener *x)
{
    int vertices = 2 * x->nodes + 2, from = vertices - 2, to = vertices - 1;
    meg_pool *pool = meg_pool_new();
    meg_mincut f = meg_mincut_new(pool, vertices, 2 * x->nodes + 2 * x->first[x->nodes] + 1);
    bool *below = meg_pool_alloc(pool, (size_t)vertices);
    for (int i = 0; i < x->nodes; i++)
        add_node(x, &f, i, from, to);
    meg_mincut_cut(&f, from, to, below);
    for (int i = 0; i < x->nodes; i++)
        if (below[behind(i)] && !below[before(i)]) x->grows[i] = false;
    meg_pool_free(pool);
}

/* Readers come first, so that what they make is known. */
static void make_halos(const meg_plan *p, meg_entry *e, const widener *x)
{
    for (int i = x->nodes - 1; i >= 0; i--) {
        const meg_node *v = &e->graph->node[i];
        int size = meg_entry_mesh(e, 0, e->segment_of[i])->size;
        if (!x->grows[i] || x->depth[i] == 0) continue;
        meg_box *made = meg_pool_alloc(p->pool, (size_t)size * sizeof *made);
        for (int k = 0; k < size; k++)
            made[k] = meg_entry_held(e, v->out[0], k);
        e->made[v->out[0]] = made;
    }
}

static bool cuts_pixels(const meg_entry *e)
{
    for (int i = 0; i < e->segments; i++)
        for (int a = MEG_D; a < MEG_AXES; a++)
            if (e->segment[i].dim[a] > 1) return true;
    return false;
}

meg_status meg_entry_widen(const meg_plan *p, meg_entry *e, meg_error *error)
{
    int wide = (int)p->options.wide;
    if (wide == 1) return MEG_OK;
    MEG_CHECK(error, cuts_pixels(e), MEG_EARG,
              "wide=%d, but no pixels are cut: use mesh=2x1 or the like, or leave wide out", wide);
    widener x = {.e = e, .pool = meg_pool_new(), .most = wide};
    find_edges(&x);
    while (count_halos(&x))
        exchange_some(&x);
    make_halos(p, e, &x);
    meg_pool_free(x.pool);
    return MEG_OK;
}
