/* Who has what: which part of every value each rank makes and holds.
 *
 * A segment's mesh spreads over all replicas: its n counts them. What an axis of it does to a node
 * follows from the node alone (cut the output, else the sum, else copy):
 *
 *     n        along the samples: cut.  Summed over samples: partial.  Neither: copied
 *     d h w    along pixels: cut.       Summed over pixels: partial.   Neither, or an operator that
 *              cannot be cut (pixels become tokens): copied
 *     c        convolutions and dense layers: their filters are cut, or the sum over their input's
 *              channels (channels= says which; auto: the latter where the input is cut already).
 *              Others follow their inputs
 */
#include "plan/distribute/distribute.h"
#include "plan/partition/placement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts ---- */

typedef struct distributor {
    const meg_plan *plan;
    meg_entry *e;
    meg_error *error;
    const meg_node *v;
    meg_layout *l; /* of its value */
    int dim;       /* of the mesh along the axis at hand */
} distributor;

static bool reads_samples(const meg_entry *e, const meg_node *v)
{
    for (int k = 0; k < v->inputs; k++)
        if (e->sampled[v->in[k]]) return true;
    return false;
}

static int64_t grain_of(const distributor *s, int axis)
{
    return s->v->op->grain ? s->v->op->grain(s->e->graph, s->v, axis) : 1;
}

static void set(distributor *s, int axis, meg_split how, const int64_t *at)
{
    s->l->on[axis] = (meg_along){how, axis, at};
}

static const int64_t *cut_samples(const distributor *s)
{
    return meg_plan_samples(s->plan, s->e->graph->batch, s->dim);
}

static void along_samples(distributor *s)
{
    if (s->e->sampled[s->v->out[0]]) set(s, MEG_N, MEG_SPLIT_CUT, cut_samples(s));
    else if (reads_samples(s->e, s->v) && meg_extent(&s->l->whole.sum, MEG_N) == s->e->graph->batch)
        set(s, MEG_N, MEG_SPLIT_PARTIAL, cut_samples(s));
}

/* Of this axis alone: of a small last batch, replicas may have no samples. */
static meg_status check_axis(const distributor *s, int axis)
{
    meg_layout alone = *s->l;
    for (int a = 0; a < MEG_MESH_AXES; a++)
        if (a != axis) alone.on[a].how = MEG_SPLIT_COPY;
    return meg_layout_check(&alone, s->error, s->e->graph, s->v->out[0]);
}

/* As the mesh has it. */
static const int64_t *cut(const distributor *s, int axis, int64_t extent, int64_t grain)
{
    const meg_segment *seg = &s->e->segment[s->e->segment_of[s->v->id]];
    meg_pool *pool = s->plan->pool;
    return seg->share[axis] ? meg_cuts_shared(pool, extent, s->dim, grain, seg->share[axis])
                            : meg_cuts_even(pool, extent, s->dim, grain);
}

static meg_status along_pixels(distributor *s, int axis)
{
    int64_t out = meg_extent(&s->l->whole.out, axis), sum = meg_extent(&s->l->whole.sum, axis);
    int64_t grain = grain_of(s, axis);
    if (out > 1 && grain) {
        set(s, axis, MEG_SPLIT_CUT, cut(s, axis, out, grain));
        return check_axis(s, axis);
    }
    if (sum >= s->dim && reads_samples(s->e, s->v))
        set(s, axis, MEG_SPLIT_PARTIAL, cut(s, axis, sum, 1));
    return MEG_OK;
}

/* How an input is cut along c, if it is; else NULL. */
static const int64_t *cut_of(const distributor *s, int value)
{
    int maker = s->e->graph->value[value].maker;
    if (maker < 0 || s->e->segment_of[maker] != s->e->segment_of[s->v->id]) return NULL;
    const meg_along *a = &s->e->layout[value].on[MEG_C];
    return a->how == MEG_SPLIT_CUT ? a->at : NULL;
}

static void linear_channels(distributor *s)
{
    int64_t out = meg_extent(&s->l->whole.out, MEG_C), sum = meg_extent(&s->l->whole.sum, MEG_C);
    int64_t in = meg_extent(&s->e->graph->value[s->v->in[0]].shape, MEG_C);
    int64_t grain = grain_of(s, MEG_C);
    int how = s->plan->options.channels;
    bool inputs = how == MEG_CHANNELS_INPUT;
    bool sums = inputs || (how == MEG_CHANNELS_AUTO && cut_of(s, s->v->in[0]));
    if (sums && sum == in && sum >= s->dim) set(s, MEG_C, MEG_SPLIT_PARTIAL, cut(s, MEG_C, sum, 1));
    else if (!inputs && grain && out >= s->dim * grain)
        set(s, MEG_C, MEG_SPLIT_CUT, cut(s, MEG_C, out, grain));
}

static bool fits_grain(const int64_t at[], int dim, int64_t grain)
{
    for (int i = 1; i < dim; i++)
        if (grain == 0 || at[i] % grain) return false;
    return true;
}

/* In what multiples its readers may be cut along c. */
static int64_t readers_grain(const distributor *s)
{
    const meg_entry *e = s->e;
    int64_t most = grain_of(s, MEG_C);
    for (int i = e->reader_first[s->v->out[0]]; i < e->reader_first[s->v->out[0] + 1]; i++) {
        const meg_node *v = &e->graph->node[e->reader[i]];
        int64_t grain = v->op->grain ? v->op->grain(e->graph, v, MEG_C) : 1;
        if (grain > most) most = grain;
    }
    return most;
}

/* Queries, keys and values are slices of one product: each rank takes some heads of all three. */
static bool slice_channels(distributor *s, int64_t out)
{
    int64_t grain = readers_grain(s);
    if (!s->v->op->selects || out < s->dim * grain) return false;
    set(s, MEG_C, MEG_SPLIT_CUT, cut(s, MEG_C, out, grain));
    return true;
}

static void follow_channels(distributor *s)
{
    const meg_graph *g = s->e->graph;
    int64_t out = meg_extent(&s->l->whole.out, MEG_C), sum = meg_extent(&s->l->whole.sum, MEG_C);
    for (int k = 0; k < s->v->inputs; k++) {
        const int64_t *at = cut_of(s, s->v->in[k]);
        int64_t in = meg_extent(&g->value[s->v->in[k]].shape, MEG_C);
        if (!at) continue;
        if (in == out && fits_grain(at, s->dim, grain_of(s, MEG_C)))
            set(s, MEG_C, MEG_SPLIT_CUT, at);
        else if (out == 1 && sum == in) set(s, MEG_C, MEG_SPLIT_PARTIAL, at);
        else if (!slice_channels(s, out)) continue;
        return;
    }
}

static meg_status lay_out(distributor *s)
{
    meg_entry *e = s->e;
    const meg_segment *seg = &e->segment[e->segment_of[s->v->id]];
    *s->l = meg_layout_new(meg_entry_mesh(e, 0, e->segment_of[s->v->id]), e->graph, s->v->out[0]);
    bool samples = reads_samples(e, s->v);
    for (int a = 0; a < MEG_AXES; a++) {
        s->dim = s->l->mesh->dim[a];
        if (s->dim == 1 || (a != MEG_N && !samples) || seg->size == 0) continue;
        if (a == MEG_N) along_samples(s);
        else if (a != MEG_C) MEG_TRY(s->error, along_pixels(s, a));
        else if (meg_is_move(s->v)) continue;
        else if (s->v->op->linear) linear_channels(s);
        else follow_channels(s);
    }
    for (int k = 1; k < s->v->outputs; k++)
        e->layout[s->v->out[k]] = *s->l;
    return MEG_OK;
}

static void find_readers(const meg_plan *p, meg_entry *e)
{
    const meg_graph *g = e->graph;
    size_t values = (size_t)g->values + 2, edges = 1;
    e->reader_first = meg_pool_alloc(p->pool, values * sizeof(int));
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++, edges++)
            e->reader_first[g->node[i].in[k] + 2]++;
    for (int i = 2; i < g->values + 2; i++)
        e->reader_first[i] += e->reader_first[i - 1];
    e->reader = meg_pool_alloc(p->pool, edges * sizeof(int));
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            e->reader[e->reader_first[g->node[i].in[k] + 1]++] = i;
}

/* Which values have their samples along n. */
static void find_sampled(const meg_plan *p, meg_entry *e)
{
    const meg_graph *g = e->graph;
    e->sampled = meg_pool_alloc(p->pool, (size_t)g->values + 1);
    for (int i = 0; i < g->values; i++)
        e->sampled[i] = g->value[i].kind == MEG_INPUT || g->value[i].kind == MEG_LABEL;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        bool any = reads_samples(e, v);
        for (int k = 0; k < v->outputs; k++)
            e->sampled[v->out[k]] = any && !v->op->per_step &&
                                    g->value[v->out[k]].shape.hi[MEG_N] == g->batch;
    }
}

static meg_status check_samples(const meg_plan *p, const meg_entry *e, meg_error *error)
{
    for (int i = 0; i < e->segments; i++) {
        int64_t n = e->segment[i].dim[MEG_N], most = e->graph->batch / p->replicas;
        char use[48] = "n1";
        if (most > 1) snprintf(use, sizeof use, "n1..n%" PRId64, most);
        MEG_CHECK(error, n == 1 || n * p->replicas <= e->graph->batch, MEG_EARG,
                  "%s: %" PRId64 " sample%s of a micro-batch cannot be cut over %d replica%s and "
                  "mesh n%" PRId64 ": use %s%s, or %s",
                  e->name, e->graph->batch, e->graph->batch == 1 ? "" : "s", p->replicas,
                  p->replicas == 1 ? "" : "s", n, use, most > 0 ? "" : " and fewer replicas",
                  e == &p->entry[MEG_ENTRY_TRAIN_TAIL]
                      ? "a batch that leaves more samples, or none, for the data's last one"
                      : "a larger batch");
    }
    return MEG_OK;
}

/* Is anything cut along this axis in a segment that asks for it? `dim`: the most parts asked for;
 * `best`: of all values there, that with the largest extent. */
static bool cuts_anything(const meg_entry *e, int axis, int *dim, int *best)
{
    const meg_graph *g = e->graph;
    *dim = 1;
    for (int i = 0; i < g->nodes; i++) {
        int y = g->node[i].out[0], parts = e->segment[e->segment_of[i]].dim[axis];
        if (parts == 1 || meg_is_move(&g->node[i])) continue;
        if (e->layout[y].on[axis].how != MEG_SPLIT_COPY) return true;
        if (*dim == 1 || g->value[y].shape.hi[axis] > g->value[*best].shape.hi[axis]) *best = y;
        if (parts > *dim) *dim = parts;
    }
    return *dim == 1;
}

/* What would do instead of so many parts, where the largest value may be cut anywhere. */
static const char *instead(const meg_plan *p, const meg_value *x, int axis, int dim)
{
    if (axis == MEG_C && p->options.channels == MEG_CHANNELS_INPUT)
        return "channels=auto, which cuts filters, or fewer parts";
    if (x->shape.hi[axis] < dim) return "fewer parts";
    if (axis == MEG_C) return "c where there is a conv or dense layer to begin the cut";
    return "another axis";
}

/* In what multiples the largest value may be cut, if not by one, and how many parts that makes. */
static bool say_grain(const meg_entry *e, const meg_value *x, int axis, char has[48], char use[48])
{
    const meg_node *v = &e->graph->node[x->maker];
    int64_t grain = v->op->grain ? v->op->grain(e->graph, v, axis) : 1, extent = x->shape.hi[axis];
    if (grain < 2) return false;
    snprintf(has, 48, " in multiples of %" PRId64, grain);
    snprintf(use, 48, "1..%" PRId64 " parts", (extent + grain - 1) / grain);
    return true;
}

/* Ranks that all do the same are a mistake. */
static meg_status check_use(const meg_plan *p, const meg_entry *e, meg_error *error)
{
    for (int a = MEG_C; a < MEG_AXES; a++) {
        int dim, best = 0;
        char letter = "ncdhw"[a];
        if (cuts_anything(e, a, &dim, &best)) continue;
        const meg_value *x = &e->graph->value[best];
        int64_t most = x->shape.hi[a];
        char brief[MEG_BRIEF];
        MEG_CHECK(
            error, most > 1, MEG_EARG,
            "mesh=%s: %d parts along %c, but no layer there has more than one, %s among them: "
            "leave %c out",
            meg_brief(p->options.mesh, brief), dim, letter, x->name, letter);
        char grain[48] = "", parts[48];
        bool grainy = say_grain(e, x, a, grain, parts);
        return meg_fail(
            error, MEG_EARG,
            "mesh=%s: %d parts along %c, but no layer there can be cut so; the largest, "
            "%s (%s), has an extent of %" PRId64 "%s: use %s, or leave %c out",
            meg_brief(p->options.mesh, brief), dim, letter, x->name,
            e->graph->node[x->maker].op->name, most, grain, grainy ? parts : instead(p, x, a, dim),
            letter);
    }
    return MEG_OK;
}

/* May several ranks hold the weight? */
static bool is_shared(const meg_entry *e, int value)
{
    int first = e->reader_first[value], end = e->reader_first[value + 1];
    bool shared = e->timetable->directions > 1;
    for (int i = first; i < end && !shared; i++) {
        int segment = e->segment_of[e->reader[i]];
        shared = meg_entry_mesh(e, 0, segment)->size > 1 ||
                 segment != e->segment_of[e->reader[first]];
    }
    return shared;
}

/* Weights that ranks share, and what they make shares of: the same on all ranks. */
static void number_tags(const meg_plan *p, meg_entry *e)
{
    e->tag_number = meg_pool_alloc(p->pool, ((size_t)e->graph->values + 1) * sizeof(int));
    for (int i = 0; i < e->graph->values; i++) {
        const meg_value *x = &e->graph->value[i];
        bool sum = x->maker >= 0 &&
                   (meg_entry_partial(e, i) || e->graph->node[x->maker].op->per_step);
        bool weight = x->kind == MEG_PARAMETER && is_shared(e, i);
        e->tag_number[i] = sum || weight ? e->tagged++ : -1;
    }
}

meg_status meg_entry_distribute(const meg_plan *p, meg_entry *e, meg_error *error)
{
    int directions = e->timetable->directions;
    e->segments = p->segments;
    e->segment = p->segment;
    e->mesh = meg_pool_alloc(p->pool, (size_t)(directions * e->segments) * sizeof(meg_mesh *));
    e->whole = true;
    for (int i = 0; i < e->segments; i++) {
        for (int d = 0; d < directions; d++)
            e->mesh[d * e->segments + i] = meg_plan_mesh(p, d, &e->segment[i]);
        e->whole = e->whole && e->segment[i].size == e->segment[i].dim[MEG_N];
    }
    find_sampled(p, e);
    find_readers(p, e);
    meg_entry_find_samples(p, e);
    MEG_TRY(error, check_samples(p, e, error));
    e->layout = meg_pool_alloc(p->pool, ((size_t)e->graph->values + 1) * sizeof *e->layout);
    e->made = meg_pool_alloc(p->pool, ((size_t)e->graph->values + 1) * sizeof *e->made);
    e->weight = meg_pool_alloc(p->pool, ((size_t)e->graph->values + 1) * sizeof *e->weight);
    distributor s = {.plan = p, .e = e, .error = error};
    for (int i = 0; i < e->graph->nodes; i++) {
        s.v = &e->graph->node[i];
        s.l = &e->layout[s.v->out[0]];
        MEG_TRY(error, lay_out(&s));
    }
    MEG_TRY(error, check_use(p, e, error));
    number_tags(p, e);
    MEG_TRY(error, meg_entry_widen(p, e, error));
    meg_entry_number_exchanges(p, e);
    return MEG_OK;
}
