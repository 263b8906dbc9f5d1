/* Random graphs, and random plans for them, from a seed.
 *
 * Graphs: chains of convolutions, pools and norms over 1 to 3 spatial axes, with residual adds,
 * sums with what is spread, skips, odd sizes, asymmetric padding, groups, tied weights, values read twice by a node; a head.
 *
 * Plans: one to three segments on meshes of 1 to 8 of the 8 ranks, that may overlap or not.
 *
 *     batch    cuts n                          spatial  cuts d, h and w
 *     filter   cuts output channels            channel  cuts what convolutions sum over: partial
 *     copies   everybody computes everything   hybrid   all of these, filter or channel by node
 *     wild     any axis of a mesh cuts any axis of output or sum, or copies; anew at each node
 *
 * Half of the cuts are even, the others fall anywhere, so that parts may be empty.
 */
#ifndef MEG_TESTS_IMAGINARY_RANDOM_H
#define MEG_TESTS_IMAGINARY_RANDOM_H

#include "imaginary.h"
#include "ops/attrs.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 8,
    SEGMENTS = 3,
    MOST_CHANNELS = 6,
    MOST_ELEMENTS = 2000
};

static inline uint64_t scramble(uint64_t x) /* splitmix64, Steele et al. 2014 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline int64_t draw(uint64_t *state, int64_t lo, int64_t hi) /* both included */
{
    *state = scramble(*state);
    return lo + (int64_t)(*state % (uint64_t)(hi - lo + 1));
}

/* ---- graphs ---- */

typedef struct maker {
    meg_graph *g;
    uint64_t *state;
} maker;

typedef struct words { /* an attribute string in the making */
    char text[256];
    size_t used;
} words;

__attribute__((format(printf, 2, 3))) static inline void say(words *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->used += (size_t)vsnprintf(t->text + t->used, sizeof t->text - t->used, format, args);
    va_end(args);
    assert(t->used < sizeof t->text);
}

/* " word=2x1x3", each 1 to most; sets at[] */
static inline void say_axes(maker *m, words *t, const char *word, int64_t most, int64_t at[],
                            int space)
{
    say(t, " %s=", word);
    for (int i = 0; i < space; i++) {
        at[i] = draw(m->state, 1, most);
        say(t, "%s%" PRId64, i ? "x" : "", at[i]);
    }
}

/* Kernel, stride, dilation and padding of each axis, anything that the operator might take. */
static inline void say_windows(maker *m, words *t, const char *op, int space)
{
    int64_t kernel[MEG_AXES], unused[MEG_AXES];
    bool conv = strcmp(op, "conv") == 0, average = strcmp(op, "avgpool") == 0;
    say_axes(m, t, "kernel", conv ? 7 : 4, kernel, space);
    say_axes(m, t, "stride", 3, unused, space);
    if (!average) say_axes(m, t, "dilation", conv ? 3 : 2, unused, space);
    say(t, " pad=");
    for (int i = 0; i < space; i++)
        say(t, "%s%" PRId64 ":%" PRId64, i ? "x" : "", draw(m->state, 0, kernel[i] - 1),
            draw(m->state, 0, kernel[i] - 1));
    if (average) say(t, " count_pad=%" PRId64, draw(m->state, 0, 1));
    if (!conv) say(t, " ceil=%" PRId64, draw(m->state, 0, 1));
}

static inline void say_filters(maker *m, words *t, int64_t channels)
{
    int64_t groups = draw(m->state, 0, 2) ? 1 : draw(m->state, 2, 3);
    if (channels % groups) groups = 1;
    say(t, " groups=%" PRId64 " filters=%" PRId64 " bias=%" PRId64, groups,
        groups * draw(m->state, 1, MOST_CHANNELS / groups), draw(m->state, 0, 1));
}

/* Would the layer be legal and small? Asked of a graph of its own, since errors stay. Sets the
 * shape of its weight, if it has one. */
static inline bool fits(const meg_value *x, const char *op, const char *attrs, meg_box *weight)
{
    meg_graph *g = meg_graph_create("trial");
    int in = meg_graph_input(g, "x", x->rank, x->dims);
    int y = meg_graph_add(g, op, "y", attrs, 1, &in);
    bool good = y >= 0 && meg_box_size(&g->value[y].shape) <= MOST_ELEMENTS;
    if (good && g->node[0].inputs > 1) *weight = g->value[g->node[0].in[1]].shape;
    meg_graph_destroy(g);
    return good;
}

/* Sometimes with a weight that is there already: a tied weight is one value with two uses. */
static inline int add_layer(maker *m, const char *op, const char *attrs, int x, meg_box weight)
{
    int in[2] = {x, -1};
    for (int i = 0; i < m->g->values; i++) {
        const meg_value *v = &m->g->value[i];
        bool same = v->kind == MEG_PARAMETER && meg_box_equal(&v->shape, &weight);
        if (same && draw(m->state, 0, 1)) in[1] = i;
    }
    return meg_graph_add(m->g, op, "", attrs, in[1] >= 0 ? 2 : 1, in);
}

static inline int add_window(maker *m, const char *op, int x)
{
    for (;;) {
        const meg_value *v = &m->g->value[x];
        words t = {.used = 0};
        meg_box weight = {{0}, {0}};
        if (strcmp(op, "conv") == 0) say_filters(m, &t, v->shape.hi[MEG_C]);
        say_windows(m, &t, op, v->rank - 2);
        if (fits(v, op, t.text, &weight)) return add_layer(m, op, t.text, x, weight);
    }
}

static inline int add_conv(maker *m, int x)
{
    return add_window(m, "conv", x);
}

static inline int add_maxpool(maker *m, int x)
{
    return add_window(m, "maxpool", x);
}

static inline int add_avgpool(maker *m, int x)
{
    return add_window(m, "avgpool", x);
}

/* x + conv(x), or x + conv(conv(x)) with the same weight; it keeps the shape: asymmetric padding
 * where the kernel is even */
static inline int add_residual(maker *m, int x)
{
    const meg_value *v = &m->g->value[x];
    words t = {.used = 0};
    int64_t kernel = draw(m->state, 1, 5), dilation = draw(m->state, 1, 2);
    int64_t around = (kernel - 1) * dilation;
    say(&t, "kernel=%" PRId64 " dilation=%" PRId64 " pad=%" PRId64 ":%" PRId64, kernel, dilation,
        around / 2, around - around / 2);
    say(&t, " filters=%" PRId64, v->shape.hi[MEG_C]);
    meg_box weight = {{0}, {0}};
    if (!fits(v, "conv", t.text, &weight)) return x;
    int y = add_layer(m, "conv", t.text, x, weight);
    int tied = m->g->node[m->g->nodes - 1].in[1];
    if (draw(m->state, 0, 2) == 0) y = meg_graph_add(m->g, "conv", "", t.text, 2, (int[]){y, tied});
    return meg_graph_add(m->g, "add", "", draw(m->state, 0, 1) ? "relu=1" : "", 2, (int[]){x, y});
}

/* with up to two values of the same shape, but for the channels of concat; perhaps x once more */
static inline int add_skip(maker *m, int x, const char *op, bool any_channels)
{
    int in[3] = {x}, inputs = 1;
    int64_t channels = m->g->value[x].shape.hi[MEG_C];
    for (int i = 0; i < m->g->values && inputs < 3; i++) {
        const meg_value *v = &m->g->value[i];
        meg_box shape = v->shape;
        if (any_channels) shape.hi[MEG_C] = m->g->value[x].shape.hi[MEG_C];
        bool same = v->rank == m->g->value[x].rank && meg_box_equal(&shape, &m->g->value[x].shape);
        if (!same || (v->kind != MEG_MADE && v->kind != MEG_INPUT)) continue;
        if (any_channels && channels + v->shape.hi[MEG_C] > 2 * MOST_CHANNELS) continue;
        if (draw(m->state, 0, 2) == 0) continue;
        channels += v->shape.hi[MEG_C];
        in[inputs++] = i;
    }
    return inputs > 1 ? meg_graph_add(m->g, op, "", "", inputs, in) : x;
}

static inline int add_add(maker *m, int x)
{
    return add_skip(m, x, "add", false);
}

/* x plus something smaller that is spread over it: a parameter of its own, with some axes of extent
 * 1, or the means of x's channels. */
static inline int add_spread(maker *m, int x)
{
    const meg_value *v = &m->g->value[x];
    char name[32];
    meg_weight_spec spec = {.kind = MEG_PARAMETER, .shape = v->shape, .rank = v->rank};
    int b;
    memcpy(spec.dims, v->dims, sizeof spec.dims);
    spec.shape.hi[MEG_N] = spec.dims[0] = 1;
    for (int i = 1; i < v->rank; i++)
        if (draw(m->state, 0, 1))
            spec.dims[i] = spec.shape.hi[i == 1 ? MEG_C : MEG_AXES - v->rank + i] = 1;
    snprintf(name, sizeof name, "rows%d", m->g->nodes);
    if (draw(m->state, 0, 2)) b = meg_graph_parameter(m->g, name, &spec);
    else b = meg_graph_add(m->g, "gap", "", "", 1, &x);
    return meg_graph_add(m->g, "add", "", draw(m->state, 0, 1) ? "relu=1" : "", 2, (int[]){x, b});
}

static inline int add_concat(maker *m, int x)
{
    return add_skip(m, x, "concat", true);
}

static inline int add_norm(maker *m, int x)
{
    words mean = {.used = 0}, norm = {.used = 0};
    int64_t size = draw(m->state, 1, m->g->value[x].shape.hi[MEG_N]);
    say(&mean, "norm=%" PRId64, size);
    say(&norm, "norm=%" PRId64 " epsilon=0.1 relu=%" PRId64, size, draw(m->state, 0, 1));
    int in[3] = {x};
    in[1] = meg_graph_add(m->g, "mean", "", mean.text, 1, in);
    in[2] = meg_graph_add(m->g, "var", "", mean.text, 2, in);
    return meg_graph_add(m->g, "norm", "", norm.text, 3, in);
}

/* Inside samples: any number of channels, the last set perhaps of fewer; pixels apart or not. */
static inline int add_norm_sets(maker *m, int x)
{
    words mean = {.used = 0}, norm = {.used = 0};
    int64_t channels = draw(m->state, 1, m->g->value[x].shape.hi[MEG_C]);
    int64_t pixels = draw(m->state, 0, 1);
    say(&mean, "norm=1 channels=%" PRId64 " pixels=%" PRId64, channels, pixels);
    say(&norm, "channels=%" PRId64 " pixels=%" PRId64 " epsilon=0.1 relu=%" PRId64, channels,
        pixels, draw(m->state, 0, 1));
    say(&norm, " elements=%" PRId64, draw(m->state, 0, 1));
    int in[3] = {x};
    in[1] = meg_graph_add(m->g, "mean", "", mean.text, 1, in);
    in[2] = meg_graph_add(m->g, "var", "", mean.text, 2, in);
    return meg_graph_add(m->g, "norm_sets", "", norm.text, 3, in);
}

static inline int add_head(maker *m, int x)
{
    int64_t which = draw(m->state, 0, 3);
    if (which == 0) x = meg_graph_add(m->g, "gap", "", "", 1, &x);
    if (which <= 1) x = meg_graph_add(m->g, "dense", "", "units=3", 1, &x);
    return x;
}

static inline meg_graph *random_graph(uint64_t *state)
{
    static int (*const layers[])(maker *, int) = {
        add_conv,   add_conv,    add_conv,    add_residual, add_add,      add_norm,
        add_concat, add_maxpool, add_avgpool, add_spread,   add_norm_sets};
    static const int64_t most[] = {14, 11, 5}; /* pixels along each of 1, 2, 3 spatial axes */
    maker m = {meg_graph_create("random"), state};
    int space = (int)(draw(state, 0, 4) + 4) / 3; /* mostly 2 */
    int64_t dims[MEG_AXES] = {draw(state, 1, 4), draw(state, 1, 4)};
    for (int i = 0; i < space; i++)
        dims[2 + i] = draw(state, 3, most[space - 1]);
    int x = meg_graph_input(m.g, "x", 2 + space, dims);
    x = add_conv(&m, x);
    for (int64_t left = draw(state, 1, 6); left > 0; left--)
        x = layers[draw(state, 0, sizeof layers / sizeof *layers - 1)](&m, x);
    add_head(&m, x);
    if (m.g->error.status != MEG_OK) fail_msg("%s", m.g->error.message);
    return m.g;
}

/* ---- plans ---- */

#define FAMILIES(X) X(batch) X(spatial) X(filter) X(channel) X(copies) X(hybrid) X(wild)
typedef enum family {
#define X(name) FAMILY_##name,
    FAMILIES(X)
#undef X
    FAMILY_COUNT
} family;

typedef struct planner {
    meg_pool *pool;
    uint64_t *state;
    int segments;
    const meg_mesh *mesh[SEGMENTS];
    family family[SEGMENTS];
    bool used[FAMILY_COUNT];
} planner;

static inline const int64_t *random_cuts(planner *p, int64_t extent, int parts)
{
    int64_t *at = meg_cuts_even(p->pool, extent, parts, 1);
    if (draw(p->state, 0, 1)) return at;
    for (int i = 1; i < parts; i++) { /* insertion sort as they come */
        int64_t cut = draw(p->state, 0, extent);
        int k = i;
        for (; k > 1 && at[k - 1] > cut; k--)
            at[k] = at[k - 1];
        at[k] = cut;
    }
    return at;
}

/* A third of them keep to one half of the ranks, so that some share none. */
static inline const meg_mesh *random_mesh(planner *p, family f)
{
    static const bool wants[FAMILY_COUNT][MEG_MESH_AXES] = {[FAMILY_batch] = {1},
                                                            [FAMILY_spatial] = {0, 0, 1, 1, 1},
                                                            [FAMILY_filter] = {0, 1},
                                                            [FAMILY_channel] = {0, 1},
                                                            [FAMILY_copies] = {[5] = 1},
                                                            [FAMILY_hybrid] = {1, 1, 1, 1, 1, 1},
                                                            [FAMILY_wild] = {1, 1, 1, 1, 1, 1}};
    bool halves = draw(p->state, 0, 2) == 0;
    int most = halves ? RANKS / 2 : RANKS, first = halves ? most * (int)draw(p->state, 0, 1) : 0;
    int dim[MEG_MESH_AXES], rank[RANKS], size;
    do {
        size = 1;
        for (int m = 0; m < MEG_MESH_AXES; m++) {
            dim[m] = wants[f][m] ? (int)draw(p->state, 1, most) : 1;
            size *= dim[m];
        }
    } while (size > most || (size == 1 && draw(p->state, 0, 7)));
    for (int r = 0; r < most; r++)
        rank[r] = first + r;
    for (int i = 0; i < size; i++) { /* shuffled as far as it is used */
        int k = (int)draw(p->state, i, most - 1), swap = rank[k];
        rank[k] = rank[i];
        rank[i] = swap;
    }
    return meg_mesh_new(p->pool, dim, rank);
}

/* What mesh axis m does in this family to the value; sets the axis. */
static inline meg_split choose(planner *p, family f, const meg_layout *l, const meg_value *v,
                               meg_along *on)
{
    int m = (int)(on - l->on);
    on->axis = f == FAMILY_wild || m == MEG_AXES ? (int)draw(p->state, 0, MEG_AXES - 1) : m;
    if (f == FAMILY_wild) return (meg_split)draw(p->state, MEG_SPLIT_COPY, MEG_SPLIT_PARTIAL);
    if (f == FAMILY_copies || m == MEG_AXES) return MEG_SPLIT_COPY;
    if (meg_kind_lasts(v->kind)) /* home: copied, or cut as in ZeRO */
        return draw(p->state, 0, 1) ? MEG_SPLIT_COPY : MEG_SPLIT_CUT;
    if (v->shape.hi[m] == 1) return MEG_SPLIT_PARTIAL;
    if (f == FAMILY_hybrid) return draw(p->state, 0, 1) ? MEG_SPLIT_PARTIAL : MEG_SPLIT_CUT;
    return f == FAMILY_channel ? MEG_SPLIT_PARTIAL : MEG_SPLIT_CUT;
}

/* The channels of a grouped convolution: a part of each group is no box. */
static inline bool grouped(const meg_graph *g, const meg_value *v, int axis)
{
    if (v->maker < 0 || axis != MEG_C) return false;
    const meg_node *by = &g->node[v->maker];
    return strcmp(by->op->name, "conv") == 0 && ((const meg_conv_attr *)by->attr)->groups > 1;
}

static inline meg_layout random_layout(planner *p, const meg_graph *g, int value, int segment)
{
    const meg_value *v = &g->value[value];
    meg_layout l = meg_layout_new(p->mesh[segment], g, value);
    bool taken[3][MEG_AXES] = {{false}};
    for (int m = 0; m < MEG_MESH_AXES; m++) {
        meg_along *on = &l.on[m];
        meg_split how = choose(p, p->family[segment], &l, v, on);
        bool no_sum = l.whole.sum.hi[on->axis] == 1 || grouped(g, v, on->axis);
        if (how == MEG_SPLIT_PARTIAL && no_sum) how = MEG_SPLIT_CUT;
        if (how == MEG_SPLIT_COPY || taken[how][on->axis]) continue;
        const meg_box *whole = how == MEG_SPLIT_CUT ? &l.whole.out : &l.whole.sum;
        taken[how][on->axis] = true;
        on->how = how;
        on->at = random_cuts(p, whole->hi[on->axis], l.mesh->dim[m]);
    }
    return l;
}

static inline imaginary_plan random_plan(planner *p, const meg_graph *g)
{
    static const int one[MEG_MESH_AXES] = {1, 1, 1, 1, 1, 1};
    meg_layout *layout = meg_pool_alloc(p->pool, (size_t)g->values * sizeof *layout);
    p->segments = (int)draw(p->state, 1, SEGMENTS);
    for (int s = 0; s < p->segments; s++) {
        p->family[s] = (family)draw(p->state, 0, FAMILY_COUNT - 1);
        p->mesh[s] = random_mesh(p, p->family[s]);
        p->used[p->family[s]] = true;
    }
    int s = 0;
    for (int i = 0; i < g->values; i++) {
        int left = g->values - i, todo = p->segments - 1 - s, on = s;
        if (todo > 0 && draw(p->state, 0, left / (todo + 1)) == 0) on = ++s;
        if (g->value[i].maker < 0 && draw(p->state, 0, 2) == 0) /* may live anywhere */
            on = (int)draw(p->state, 0, p->segments - 1);
        layout[i] = random_layout(p, g, i, on);
    }
    return (imaginary_plan){layout,
                            meg_mesh_new(p->pool, one, (int[]){(int)draw(p->state, 0, RANKS - 1)})};
}

/* Everything on rank 0: what all plans are judged by. */
static inline imaginary_plan single_plan(meg_pool *pool, const meg_graph *g)
{
    static const int one[MEG_MESH_AXES] = {1, 1, 1, 1, 1, 1};
    const meg_mesh *mesh = meg_mesh_new(pool, one, NULL);
    meg_layout *layout = meg_pool_alloc(pool, (size_t)g->values * sizeof *layout);
    for (int i = 0; i < g->values; i++)
        layout[i] = meg_layout_new(mesh, g, i);
    return (imaginary_plan){layout, meg_mesh_new(pool, one, NULL)};
}

#endif
