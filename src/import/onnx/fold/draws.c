/* Random masks. Exporters write stochastic depth, and dropout of other kinds, as arithmetic:
 *
 *     RandomUniformLike -> Less keep -> Cast -> Div keep -> Mul x        torchvision, timm
 *     RandomUniform -> Add keep -> Floor -> Mul (x / keep)               older ones
 *     Bernoulli of keep -> Div keep -> Mul x
 *
 * A name of the file may therefore be a *draw*: numbers between two bounds, or a mask, and what they
 * are multiplied with. Arithmetic with constants changes the draw; where data is multiplied with a
 * mask, it becomes dropout, by its shape of elements, channels, samples or the batch. The numbers are
 * those of ops/pointwise/dropout.c; those of another framework cannot be had.
 */
#include "import/onnx/fold/draws.h"

#include <math.h>
#include <string.h>

struct meg_onnx_draw {
    int rank;
    int64_t dims[MEG_ONNX_RANK];
    bool mask; /* 0 or `factor`, with probability `keep`; else uniform in [lo, hi) */
    double lo, hi;
    double keep, factor;
    bool *taken; /* of all that is made of the same random numbers: a dropout has drawn them */
};

static meg_onnx_draw *draw_of(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    return s ? s->draw : NULL;
}

bool meg_onnx_has_draw(const meg_onnx_build *b, const meg_onnx_node *n)
{
    for (int i = 0; i < n->inputs; i++)
        if (draw_of(b, n, i)) return true;
    return false;
}

static meg_status bind_draw(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_draw *d)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (!y) return MEG_OK;
    y->draw = meg_pool_alloc(b->file->pool, sizeof *d);
    *y->draw = *d;
    return MEG_OK;
}

/* ---- where they come from ---- */

static meg_status begin_draw(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_draw *d)
{
    d->taken = meg_pool_alloc(b->file->pool, sizeof *d->taken);
    return bind_draw(b, n, d);
}

static meg_status read_uniform(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_draw d = {.lo = meg_onnx_real(n, "low", 0), .hi = meg_onnx_real(n, "high", 1)};
    d.rank = meg_onnx_ints(n, "shape", d.dims, MEG_ONNX_RANK);
    if (d.rank < 0 || d.rank > MEG_ONNX_RANK || !(d.hi > d.lo))
        return meg_onnx_refuse(b, n, "it wants a shape, and bounds");
    return begin_draw(b, n, &d);
}

static meg_status read_uniform_like(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_draw d = {.lo = meg_onnx_real(n, "low", 0), .hi = meg_onnx_real(n, "high", 1)};
    const meg_onnx_symbol *like = meg_onnx_in(b, n, 0);
    int unused;
    if (!(d.hi > d.lo)) return meg_onnx_refuse(b, n, "high must be above low");
    if (like && like->constant) {
        d.rank = like->constant->rank;
        memcpy(d.dims, like->constant->dims, sizeof d.dims);
    } else {
        MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &unused));
        d.rank = meg_onnx_dims(b, like, d.dims);
    }
    return begin_draw(b, n, &d);
}

/* With one probability for all. */
static meg_status read_bernoulli(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 0, &t));
    meg_onnx_draw d = {.mask = true, .factor = 1, .rank = t ? t->rank : 0};
    if (!t || t->size < 1) return meg_onnx_refuse(b, n, "its probabilities are missing");
    memcpy(d.dims, t->dims, sizeof d.dims);
    d.keep = meg_onnx_number(t, 0);
    MEG_TRY(b->error, meg_onnx_work(b, n, t->size));
    for (int64_t i = 0; i < t->size; i++)
        if (!(fabs(meg_onnx_number(t, i) - d.keep) <= 0))
            return meg_onnx_refuse(b, n, "its probabilities differ: one for all is supported");
    return begin_draw(b, n, &d);
}

/* ---- what becomes of them ---- */

/* Refuses with what would be right. */
static meg_status misused(const meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_refuse(b, n,
                           "random numbers are supported as a mask that data is multiplied with: "
                           "dropout, stochastic depth");
}

/* The constant beside a draw; a trained one would be frozen here. */
static meg_status number_beside(const meg_onnx_build *b, const meg_onnx_node *n, int i, double *out)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    if (!s || !s->constant || meg_onnx_is_weight(s)) return misused(b, n);
    return meg_onnx_scalar(b, n, i, 0, out);
}

static double share_below(const meg_onnx_draw *d, double bound)
{
    double share = (bound - d->lo) / (d->hi - d->lo);
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* The draw is below the number, or above it: equality has no weight. */
static meg_status compare(meg_onnx_build *b, const meg_onnx_node *n, bool less)
{
    int which = draw_of(b, n, 0) ? 0 : 1;
    meg_onnx_draw d = *draw_of(b, n, which);
    double bound;
    MEG_TRY(b->error, number_beside(b, n, 1 - which, &bound));
    if (d.mask) return misused(b, n);
    d.keep = share_below(&d, bound);
    if (less == (which == 1)) d.keep = 1 - d.keep;
    d.mask = true;
    d.factor = 1;
    return bind_draw(b, n, &d);
}

static meg_status is_less(meg_onnx_build *b, const meg_onnx_node *n)
{
    return compare(b, n, true);
}

static meg_status is_greater(meg_onnx_build *b, const meg_onnx_node *n)
{
    return compare(b, n, false);
}

static meg_status add_number(meg_onnx_build *b, const meg_onnx_node *n)
{
    int which = draw_of(b, n, 0) ? 0 : 1;
    meg_onnx_draw d = *draw_of(b, n, which);
    double number;
    MEG_TRY(b->error, number_beside(b, n, 1 - which, &number));
    if (d.mask) return misused(b, n);
    d.lo += number;
    d.hi += number;
    return bind_draw(b, n, &d);
}

/* Of numbers in [keep, keep + 1) it is 0 or 1. */
static meg_status round_down(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_draw d = *draw_of(b, n, 0);
    if (d.mask || d.lo < 0 || d.hi > 2) return misused(b, n);
    d.keep = 1 - share_below(&d, 1);
    d.mask = true;
    d.factor = 1;
    return bind_draw(b, n, &d);
}

static meg_status invert(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_draw d = *draw_of(b, n, 0);
    if (!d.mask || fabs(d.factor - 1) > 0) return misused(b, n);
    d.keep = 1 - d.keep;
    return bind_draw(b, n, &d);
}

static meg_status keep_it(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_draw *d = draw_of(b, n, 0);
    if (d) return bind_draw(b, n, d);
    int unused; /* CastLike of another input: the draw's type is asked for, which is real */
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    if (!s || !s->constant) MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &unused));
    meg_onnx_bind_same(b, n, s);
    return MEG_OK;
}

static meg_status divide(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_draw *from = draw_of(b, n, 0);
    double number;
    if (!from || !from->mask) return misused(b, n);
    meg_onnx_draw d = *from;
    MEG_TRY(b->error, number_beside(b, n, 1, &number));
    if (!(fabs(number) > 0)) return meg_onnx_refuse(b, n, "it divides by 0");
    d.factor /= number;
    return bind_draw(b, n, &d);
}

/* ---- dropout ---- */

typedef struct place { /* of a draw over data */
    const char *per;   /* NULL: none fits */
    bool front, straight;
} place;

/* Has the draw ones everywhere but on these axes, where it has the data's extents? */
static bool covers(const meg_onnx_draw *d, const int64_t dims[], int rank, unsigned axes)
{
    for (int i = 0; i < rank; i++) {
        int own = i - (rank - d->rank);
        int64_t extent = own < 0 ? 1 : d->dims[own];
        if (extent != (axes >> i & 1 ? dims[i] : 1)) return false;
    }
    return d->rank <= rank;
}

static place place_of(const meg_onnx_draw *d, const int64_t dims[], int rank)
{
    unsigned last = rank > 2 ? 1u | 1u << (rank - 1) : 3u;
    if (covers(d, dims, rank, (1u << rank) - 1)) return (place){"element", false, false};
    if (covers(d, dims, rank, 1)) return (place){"sample", false, false};
    if (covers(d, dims, rank, 0)) return (place){"batch", false, false};
    if (covers(d, dims, rank, 3)) return (place){"channel", false, true};
    if (covers(d, dims, rank, last)) return (place){"channel", true, false};
    return (place){0};
}

/* What is left to multiply with where the mask is not scaled as dropout does it. */
static meg_status scale(meg_onnx_build *b, const meg_onnx_node *n, double factor)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    meg_graph *g = b->graph;
    meg_weight_spec spec = {.kind = MEG_FIXED, .rank = 1, .shape = meg_box_of(1, 1, 1, 1, 1)};
    double *number = meg_pool_alloc(b->file->pool, sizeof *number);
    *number = factor;
    spec.dims[0] = 1;
    int *value = y->value >= 0 ? &y->value : &y->front;
    if (y->value >= 0) y->front = -1; /* not scaled: it is made anew where it is asked for */
    int by = meg_graph_parameter(g, meg_onnx_fresh(b, "kept"), &spec);
    if (by < 0) return g->error.status;
    g->value[by].stored = (meg_stored){.data = number, .type = MEG_STORED_F64};
    g->value[by].unsaved = true;
    *value = meg_graph_add(g, "mul", meg_onnx_fresh(b, "mul"), "", 2, (int[]){*value, by});
    return g->error.status;
}

static meg_status multiply(meg_onnx_build *b, const meg_onnx_node *n)
{
    int which = draw_of(b, n, 0) ? 0 : 1, x = 1 - which;
    meg_onnx_draw d = *draw_of(b, n, which);
    meg_onnx_symbol *s = meg_onnx_in(b, n, x);
    meg_onnx_layer l = {.op = "dropout", .inputs = 1};
    int64_t dims[MEG_ONNX_RANK];
    double number;
    if (!d.mask) return misused(b, n);
    if (s && s->constant) {
        MEG_TRY(b->error, number_beside(b, n, x, &number));
        d.factor *= number;
        return bind_draw(b, n, &d);
    }
    if (draw_of(b, n, x)) return misused(b, n);
    MEG_TRY(b->error, meg_onnx_data_any(b, n, x, &l.in[0]));
    place p = place_of(&d, dims, meg_onnx_dims(b, s, dims));
    if (!p.per)
        return meg_onnx_refuse(b, n,
                               "a random mask may be drawn for each element, channel or sample, or "
                               "the batch, but this one has another shape");
    if (*d.taken && d.keep > 0 && d.keep < 1)
        return meg_onnx_refuse(b, n,
                               "the same random numbers are multiplied with other data, too: "
                               "each dropout draws its own");
    *d.taken = true;
    b->drops++;
    b->drawn_alone += d.rank && dims[0] == 1 && strcmp(p.per, "sample") == 0;
    l.front = p.front || (!p.straight && meg_onnx_is_front(s));
    MEG_TRY(b->error, (l.front ? meg_onnx_data_front : meg_onnx_data)(b, n, x, &l.in[0]));
    bool scaled = fabs(d.factor * d.keep - 1) < 1e-6 || !(d.keep > 0);
    if (d.keep >= 1) meg_onnx_bind_same(b, n, s);
    else {
        meg_onnx_attr(&l, "rate=%.7g per=%s", 1 - d.keep, p.per); /* of a float, 1 - 0.6 */
        MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    }
    return scaled ? MEG_OK : scale(b, n, d.factor * d.keep);
}

/* ---- the tables ---- */

static const struct {
    const char *op;
    meg_status (*read)(meg_onnx_build *b, const meg_onnx_node *n);
} STEPS[] = {{"Less", is_less},       {"LessOrEqual", is_less},
             {"Greater", is_greater}, {"GreaterOrEqual", is_greater},
             {"Add", add_number},     {"Floor", round_down},
             {"Not", invert},         {"Cast", keep_it},
             {"CastLike", keep_it},   {"Identity", keep_it},
             {"Div", divide},         {"Mul", multiply}};

meg_status meg_onnx_read_draw(meg_onnx_build *b, const meg_onnx_node *n)
{
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (meg_bytes_is(n->op, STEPS[i].op)) return STEPS[i].read(b, n);
    return misused(b, n);
}

const meg_onnx_row meg_onnx_draws[] = {
    {"RandomUniformLike", "low high dtype seed", 1, 1, read_uniform_like},
    {"RandomUniform", "low high dtype seed shape", 0, 0, read_uniform},
    {"Bernoulli", "dtype seed", 1, 1, read_bernoulli},
    {0}};
