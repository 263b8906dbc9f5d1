/* Conformance of all operators: whatever is in the registry, with its own samples.
 *
 *     precision   the f32 kernels against the f64 ones, pass by pass
 *     replay      from inputs and aux, the outputs of forward
 *     gradients   BACKWARD and WEIGHT against central differences of L = sum of r * y, r random
 *     pieces      outputs and sums cut at random, inputs there only in their need, in storage of a
 *                 random larger box: forward gives the whole, and gradients add up to the whole's
 *
 * A kernel is given the operands that its masks name and no others; all else is NaN or absent, so
 * it can neither read beyond its need nor leave out what it must set. Inputs lie on a shuffled grid:
 * no two are equal and none is 0, so that differences meet no tie and no kink.
 */
#include "graph/op.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double F32_TOLERANCE = 1e-5;      /* sums of some hundred terms, rounded to float */
static const double GRADIENT_TOLERANCE = 1e-6; /* truncation STEP^2, cancellation 1e-16 / STEP */
static const double PIECES_TOLERANCE = 1e-10;  /* f64 sums in another order */
static const double NEGLIGIBLE = 1e-3;         /* of the largest gradient: see the house style */
static const double STEP = 1e-5;
static const double PROBE_FLOPS = 2e7; /* differences are taken of so many elements per tensor */
enum {
    CUTS = 12,
    PROBES = 16
}; /* random ways to cut; fewest elements probed */

/* Inputs that cannot be just any number, or that the operator takes for constants. */
typedef struct special {
    const char *op;
    int input;
    bool positive, constant;
} special;

static const special specials[] = {
    {"expsum", 1, false, true},      /* top: a maximum carries no gradient */
    {"xent", 1, false, true},        /* top */
    {"xent", 2, true, false},        /* expsum: its logarithm is taken */
    {"xent", 4, true, true},         /* label_count */
    {"xent", 5, true, true},         /* weights of the classes */
    {"softmax_xent", 2, true, true}, /* label_count */
    {"softmax_xent", 3, true, true}, /* weights of the classes */
    {"mse", 1, false, true},         /* targets */
    {"mse", 2, true, true},          /* label_count */
    {"bce_logits", 1, false, true},  /* targets */
    {"bce_logits", 2, true, true},   /* label_count */
    {"bce_logits", 3, true, true},   /* weights of the positives */
    {"expdiv", 1, false, true},      /* top */
    {"expdiv", 2, true, false},      /* expsum: a divisor */
    {"div", 1, true, false},         /* a divisor */
    {"dice", 2, true, true},         /* label_count */
    {"dice_mean", 0, true, false},   /* sums of probabilities */
    {"dice_mean", 1, true, true},    /* label_count */
};

static special special_of(const meg_op *op, int input)
{
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (strcmp(specials[i].op, op->name) == 0 && specials[i].input == input) return specials[i];
    return (special){op->name, input, false, false};
}

/* ---- a case: a graph of one node, and numbers for its inputs ---- */

typedef struct test_case {
    meg_graph *g;
    const meg_node *v;
    const meg_op *op;
    int64_t classes[MEG_INPUTS]; /* of labels; 0: not labels */
    double *in[MEG_INPUTS];      /* whole inputs, labels too, as doubles that float can hold */
    double *y, *dy, *grad[MEG_INPUTS]; /* of the whole work, in f64 */
    double *second;                    /* the second output, if there is one */
    meg_work whole;
    char name[160];
} test_case;

static double *doubles(int64_t count)
{
    double *a = calloc((size_t)count + 1, sizeof *a);
    assert_non_null(a);
    return a;
}

static meg_box shape_of(const test_case *t, int input)
{
    return t->g->value[t->v->in[input]].shape;
}

static meg_stream stream_of(const test_case *t, const char *what)
{
    return (meg_stream){7, meg_hash(t->name), meg_hash(what)};
}

/* Reads "2x3x9x7" or "4x5@10"; returns what follows. */
static const char *read_shape(const char *text, int *rank, int64_t dims[], int64_t *classes)
{
    char *end;
    *rank = 0, *classes = 0;
    for (;; text = end + 1) {
        assert_true(*rank < MEG_AXES);
        dims[(*rank)++] = strtoll(text, &end, 10);
        if (*end != 'x') break;
    }
    if (*end == '@') *classes = strtoll(end + 1, &end, 10);
    return end + strspn(end, " ");
}

static void fill_input(test_case *t, int i)
{
    const meg_value *value = &t->g->value[t->v->in[i]];
    int64_t count = meg_box_size(&value->shape);
    meg_stream s = stream_of(t, value->name);
    bool positive = special_of(t->op, i).positive || value->kind == MEG_STATE;
    t->in[i] = doubles(count);
    for (int64_t k = 0; k < count; k++) {
        double at = (double)meg_random_permuted(s, count, k) + 0.75 - 0.13 * i; /* sums are not 0 */
        double grid = at / (double)count - 0.5;
        double any = positive ? 0.5 + fabs(4 * grid) : 4 * grid;
        double label = floor(meg_random_uniform(s, (uint64_t)k) * (double)(t->classes[i] + 1)) - 1;
        t->in[i][k] = t->classes[i] ? (k ? label : 0) : (double)(float)any; /* -1: ignored */
    }
}

static test_case case_open(const meg_op *op, const meg_sample *sample)
{
    test_case t = {.op = op, .g = meg_graph_create(op->name)};
    int in[MEG_INPUTS], inputs = 0, rank;
    snprintf(t.name, sizeof t.name, "%s %s (%s)", op->name, sample->attrs ? sample->attrs : "",
             sample->shapes);
    for (const char *at = sample->shapes; *at; inputs++) {
        int64_t dims[MEG_AXES];
        char name[16];
        assert_true(inputs < MEG_INPUTS);
        at = read_shape(at, &rank, dims, &t.classes[inputs]);
        snprintf(name, sizeof name, "in%d", inputs);
        in[inputs] = t.classes[inputs] ? meg_graph_label(t.g, name, rank, dims)
                                       : meg_graph_input(t.g, name, rank, dims);
    }
    int y = meg_graph_add(t.g, op->name, "node", sample->attrs, inputs, in);
    if (y < 0) fail_msg("%s: %s", t.name, t.g->error.message);
    t.v = &t.g->node[0];
    t.whole = meg_op_whole(t.g, t.v);
    for (int i = 1; i < t.v->outputs; i++) { /* a work's box is that of output 0: others share it */
        const meg_value *other = &t.g->value[t.v->out[i]];
        assert_true(i == 1 && meg_box_equal(&other->shape, &t.whole.out));
        assert_int_equal(other->dtype, MEG_I32); /* and, so far, carry no gradient */
    }
    for (int i = 0; i < t.v->inputs; i++) {
        meg_box shape = shape_of(&t, i);
        fill_input(&t, i);
        t.grad[i] = doubles(meg_box_size(&shape));
    }
    int64_t count = meg_box_size(&t.whole.out);
    t.y = doubles(count), t.dy = doubles(count), t.second = doubles(count);
    for (int64_t k = 0; k < count; k++)
        t.dy[k] = (double)(float)(2 * meg_random_uniform(stream_of(&t, "dy"), (uint64_t)k) - 1.01);
    return t;
}

static void case_close(test_case *t)
{
    for (int i = 0; i < MEG_INPUTS; i++)
        free(t->in[i]), free(t->grad[i]);
    free(t->y), free(t->dy), free(t->second);
    meg_graph_destroy(t->g);
}

/* Is there a gradient to be had of this input? */
static bool differentiable(const test_case *t, int i)
{
    const meg_value *x = &t->g->value[t->v->in[i]];
    return !t->op->no_gradient && x->dtype == MEG_F32 && x->kind != MEG_STATE &&
           !special_of(t->op, i).constant;
}

/* ---- operands of one work, in one precision ---- */

typedef struct bench {
    const test_case *t;
    meg_dtype real, type[MEG_OPERANDS];
    meg_call call;
} bench;

static double get(const bench *b, int operand, int64_t i)
{
    const void *data = b->call.t[operand].data;
    switch (b->type[operand]) {
    case MEG_F32:
        return (double)((const float *)data)[i];
    case MEG_F64:
        return ((const double *)data)[i];
    case MEG_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void set(const bench *b, int operand, int64_t i, double value)
{
    void *data = b->call.t[operand].data;
    switch (b->type[operand]) {
    case MEG_F32:
        ((float *)data)[i] = (float)value;
        break;
    case MEG_F64:
        ((double *)data)[i] = value;
        break;
    case MEG_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

static size_t bytes_of(const bench *b, int operand)
{
    int64_t size = meg_box_size(&b->call.t[operand].box);
    return (size_t)(size * meg_dtype_bytes(b->type[operand]));
}

/* All bits on: NaN, and numbers that are no label or tap. */
static void poison(const bench *b, int operand)
{
    if (b->call.t[operand].data) memset(b->call.t[operand].data, 0xff, bytes_of(b, operand));
}

/* An empty box has no memory. */
static void make(bench *b, int operand, meg_box box, meg_dtype type)
{
    b->type[operand] = type == MEG_F32 ? b->real : type;
    b->call.t[operand].box = box;
    if (meg_box_empty(&box)) return;
    b->call.t[operand].data = malloc(bytes_of(b, operand));
    assert_non_null(b->call.t[operand].data);
    poison(b, operand);
}

static void put(const bench *b, int operand, meg_box part, const double *whole, meg_box shape)
{
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p))
        set(b, operand, meg_box_at(&b->call.t[operand].box, p), whole[meg_box_at(&shape, p)]);
}

/* Adds (or, `max`, keeps the larger) what a piece has to the whole. */
static void collect(const bench *b, int operand, meg_box part, double *whole, meg_box shape)
{
    int64_t p[MEG_AXES];
    bool max = b->t->op->max && operand == MEG_Y;
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p)) {
        double value = get(b, operand, meg_box_at(&b->call.t[operand].box, p));
        double *to = &whole[meg_box_at(&shape, p)];
        *to = max ? fmax(*to, value) : *to + value;
    }
}

static int64_t draw(uint64_t *state, int64_t below)
{
    meg_stream s = {11, 0, 0};
    return (int64_t)(meg_random_uniform(s, (*state)++) * (double)below);
}

/* Storage for a part: the whole value; with `state`, the part or a larger box around it. Where
 * nothing is needed there may be storage still: another work's. */
static meg_box storage(meg_box part, meg_box shape, uint64_t *state)
{
    meg_box box = part;
    if (!state) return shape;
    if (draw(state, 2)) return box;
    if (meg_box_empty(&part)) return shape;
    for (int a = 0; a < MEG_AXES; a++)
        box.lo[a] -= draw(state, 3), box.hi[a] += draw(state, 3);
    return meg_box_meet(box, shape);
}

/* Operands for a work. Inputs are there where the work needs them. */
static bench bench_open(const test_case *t, meg_dtype real, meg_work w, uint64_t *state)
{
    bench b = {.t = t, .real = real, .call = {.graph = t->g, .node = t->v, .work = w}};
    b.call.moment = (meg_moment){.seed = 5, .step = 3, .sample = 2};
    for (int i = 0; i < t->v->inputs; i++) {
        meg_box shape = shape_of(t, i), part = meg_op_need(t->g, t->v, i, &w);
        meg_box box = storage(part, shape, state);
        make(&b, MEG_X + i, box, t->g->value[t->v->in[i]].dtype);
        put(&b, MEG_X + i, part, t->in[i], shape);
        if (differentiable(t, i)) make(&b, MEG_DX + i, box, MEG_F32);
    }
    meg_box out = storage(w.out, t->whole.out, state);
    for (int i = 0; i < t->v->outputs; i++)
        make(&b, MEG_Y + i, out, t->g->value[t->v->out[i]].dtype);
    make(&b, MEG_DY, out, MEG_F32);
    put(&b, MEG_DY, w.out, t->dy, t->whole.out);
    for (int i = 0; i < t->op->auxes; i++) {
        meg_box box;
        meg_dtype type;
        t->op->aux(t->g, t->v, &w, i, &box, &type);
        make(&b, MEG_AUX + i, box, type);
    }
    return b;
}

static void bench_close(bench *b)
{
    for (int i = 0; i < MEG_OPERANDS; i++)
        free(b->call.t[i].data);
}

/* Runs a pass with what its masks name; false if there is no such pass. */
static bool run(const bench *b, meg_pass pass)
{
    if (!meg_op_has(b->t->op, pass)) return false;
    meg_call call = b->call;
    meg_mask reads = meg_op_reads(b->t->op, pass), writes = meg_op_writes(b->t->op, pass);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!((reads | writes) & MEG_BIT(i))) call.t[i] = (meg_tensor){0};
        if (writes & ~reads & MEG_BIT(i)) poison(b, i);
    }
    meg_op_kernel(b->t->op, pass, b->real)(&call);
    return true;
}

/* ---- comparisons ---- */

typedef struct error { /* squares */
    double difference, reference;
} error;

static void count_error(error *e, double got, double expected)
{
    e->difference += (got - expected) * (got - expected);
    e->reference += expected * expected;
}

/* Written so that NaN fails. `least`: a floor of the denominator. */
static void check(const test_case *t, const char *what, error e, double tolerance, double least)
{
    double size = fmax(sqrt(e.reference), least), off = sqrt(e.difference);
    if (off <= tolerance * size) return;
    fail_msg("%s: %s is off by %.3g, relative to %.3g; allowed is %.1g", t->name, what, off, size,
             tolerance);
}

static double norm(const double *a, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * a[i];
    return sqrt(sum);
}

static double largest_gradient(const test_case *t)
{
    double most = 0;
    for (int i = 0; i < t->v->inputs; i++) {
        meg_box shape = shape_of(t, i);
        most = fmax(most, norm(t->grad[i], meg_box_size(&shape)));
    }
    return most;
}

/* The operands that a pass wrote, in both precisions. Gradients are small next to the largest. */
static void check_precision(const bench *f64, const bench *f32, meg_pass pass)
{
    const test_case *t = f64->t;
    meg_mask writes = meg_op_writes(t->op, pass);
    error e[MEG_OPERANDS] = {{0}};
    double most = 0;
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!(writes & MEG_BIT(i)) || !f64->call.t[i].data) continue;
        for (int64_t k = 0; k < meg_box_size(&f64->call.t[i].box); k++)
            count_error(&e[i], get(f32, i, k), get(f64, i, k));
        most = fmax(most, i >= MEG_DX ? sqrt(e[i].reference) : 0);
    }
    for (int i = 0; i < MEG_OPERANDS; i++) {
        char what[48];
        snprintf(what, sizeof what, "f32 %s, operand %d", meg_pass_name(pass), i);
        check(t, what, e[i], F32_TOLERANCE, i >= MEG_DX ? NEGLIGIBLE * most : 0);
    }
}

/* ---- the tests of one case ---- */

/* All passes of the whole work; keeps y and the gradients for the other tests. */
static void test_whole(test_case *t)
{
    static const meg_pass order[] = {MEG_EVAL,     MEG_FORWARD, MEG_REPLAY,
                                     MEG_BACKWARD, MEG_WEIGHT,  MEG_STATE_PASS};
    bench f64 = bench_open(t, MEG_F64, t->whole, NULL);
    bench f32 = bench_open(t, MEG_F32, t->whole, NULL);
    int64_t count = meg_box_size(&t->whole.out);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!run(&f64, order[i])) continue;
        run(&f32, order[i]);
        check_precision(&f64, &f32, order[i]);
        if (order[i] == MEG_FORWARD) memcpy(t->y, f64.call.t[MEG_Y].data, bytes_of(&f64, MEG_Y));
        for (int64_t k = 0; t->v->outputs > 1 && order[i] == MEG_FORWARD && k < count; k++)
            t->second[k] = get(&f64, MEG_Y + 1, k);
        error e = {0};
        for (int64_t k = 0; order[i] == MEG_REPLAY && k < count; k++)
            count_error(&e, get(&f64, MEG_Y, k), t->y[k]);
        check(t, "replay", e, 0, 0);
    }
    for (int i = 0; i < t->v->inputs; i++)
        if (differentiable(t, i))
            memcpy(t->grad[i], f64.call.t[MEG_DX + i].data, bytes_of(&f64, MEG_DX + i));
    bench_close(&f64);
    bench_close(&f32);
}

static void test_masks(const test_case *t)
{
    const meg_op *op = t->op;
    meg_mask made = op->writes[MEG_BACKWARD] | op->writes[MEG_WEIGHT];
    for (int i = 0; i < t->v->inputs; i++) {
        bool written = made & MEG_BIT(MEG_DX + i);
        if (written != differentiable(t, i))
            fail_msg("%s: input %d %s a gradient, but its backward passes %s it", t->name, i,
                     written ? "has not" : "has", written ? "write" : "do not write");
        if ((op->writes[MEG_BACKWARD] & op->writes[MEG_WEIGHT]) & MEG_BIT(MEG_DX + i))
            fail_msg("%s: two passes write the gradient of input %d", t->name, i);
    }
    assert_true(meg_op_has(op, MEG_FORWARD));
    assert_true(op->flops(t->g, t->v, &t->whole, MEG_FORWARD) >= 0);
}

/* (L(x + STEP v) - L(x - STEP v)) / 2 STEP for input i; v: 1 at `element`, or random if that is -1.
 * The outputs are subtracted one by one, since L itself is large. `along` is <gradient, v>. */
static double difference(const bench *b, int i, int64_t element, double *along)
{
    const test_case *t = b->t;
    meg_box shape = shape_of(t, i);
    int64_t lo = element < 0 ? 0 : element;
    int64_t hi = element < 0 ? meg_box_size(&shape) : element + 1,
            count = meg_box_size(&t->whole.out);
    double *up = doubles(count), sum = 0;
    *along = 0;
    for (int sign = 1; sign >= -1; sign -= 2) {
        for (int64_t k = lo; k < hi; k++) {
            double v = element < 0 ? meg_random_uniform(stream_of(t, "v"), (uint64_t)k) - 0.5 : 1;
            set(b, MEG_X + i, k, t->in[i][k] + sign * STEP * v);
            if (sign > 0) *along += v * t->grad[i][k];
        }
        run(b, MEG_FORWARD);
        for (int64_t k = 0; k < count; k++)
            if (sign > 0) up[k] = get(b, MEG_Y, k);
            else sum += t->dy[k] * (up[k] - get(b, MEG_Y, k));
    }
    put(b, MEG_X + i, shape, t->in[i], shape);
    free(up);
    return sum / (2 * STEP);
}

static void test_gradients(const test_case *t)
{
    bench b = bench_open(t, MEG_F64, t->whole, NULL);
    double least = NEGLIGIBLE * largest_gradient(t);
    double cost = t->op->flops(t->g, t->v, &t->whole, MEG_FORWARD);
    for (int i = 0; i < t->v->inputs; i++) {
        meg_box shape = shape_of(t, i);
        int64_t size = meg_box_size(&shape), probes = (int64_t)(PROBE_FLOPS / (cost + 1e4));
        if (!differentiable(t, i)) continue;
        probes = probes < PROBES ? PROBES : probes;
        error e = {0}, dense = {0};
        double along;
        for (int64_t k = 0; k < probes && k < size; k++) {
            int64_t element = meg_random_permuted(stream_of(t, "probe"), size, k);
            double expected = difference(&b, i, element, &along);
            count_error(&e, along, expected);
        }
        double expected = difference(&b, i, -1, &along);
        count_error(&dense, along, expected);
        char what[64];
        snprintf(what, sizeof what, "gradient of %s", t->g->value[t->v->in[i]].name);
        check(t, what, e, GRADIENT_TOLERANCE, least);
        check(t, what, dense, GRADIENT_TOLERANCE, least);
    }
    bench_close(&b);
}

/* ---- pieces ---- */

typedef struct cuts { /* where each axis of a box is cut: parts lie between neighbours */
    meg_box parts;    /* numbers of the parts */
    int64_t at[MEG_AXES][4];
} cuts;

static cuts cut_box(const meg_box *b, const int64_t grain[MEG_AXES], int odds, uint64_t *state)
{
    cuts c = {.parts = meg_box_of(1, 1, 1, 1, 1)};
    for (int a = 0; a < MEG_AXES; a++) {
        int64_t units = grain[a] ? meg_extent(b, a) / grain[a] : 1, last = 0;
        c.at[a][0] = b->lo[a];
        for (int k = 0; k < 2 && units > 1 && draw(state, odds) == 0; k++) {
            int64_t unit = 1 + draw(state, units - 1);
            if (unit <= last) continue;
            c.at[a][c.parts.hi[a]++] = b->lo[a] + unit * grain[a];
            last = unit;
        }
        c.at[a][c.parts.hi[a]] = b->hi[a];
    }
    return c;
}

static meg_box part_at(const cuts *c, const int64_t p[MEG_AXES])
{
    meg_box b;
    for (int a = 0; a < MEG_AXES; a++)
        b.lo[a] = c->at[a][p[a]], b.hi[a] = c->at[a][p[a] + 1];
    return b;
}

typedef struct totals { /* what the pieces add up to */
    double *y, *eval, *grad[MEG_INPUTS];
} totals;

/* A second output is whole in every piece. */
static void check_second(const bench *b)
{
    const test_case *t = b->t;
    int64_t p[MEG_AXES];
    error e = {0};
    meg_box part = b->call.work.out;
    if (t->v->outputs < 2) return;
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p))
        count_error(&e, get(b, MEG_Y + 1, meg_box_at(&b->call.t[MEG_Y + 1].box, p)),
                    t->second[meg_box_at(&t->whole.out, p)]);
    check(t, "second output in pieces", e, 0, 0);
}

static void run_piece(const test_case *t, meg_work w, uint64_t *state, totals *sum)
{
    bench b = bench_open(t, MEG_F64, w, state);
    run(&b, MEG_EVAL);
    collect(&b, MEG_Y, w.out, sum->eval, t->whole.out);
    run(&b, MEG_FORWARD);
    collect(&b, MEG_Y, w.out, sum->y, t->whole.out);
    check_second(&b);
    put(&b, MEG_Y, w.out, t->y, t->whole.out); /* backward never reads a partial value */
    run(&b, MEG_BACKWARD);
    run(&b, MEG_WEIGHT);
    for (int i = 0; i < t->v->inputs; i++)
        if (b.call.t[MEG_DX + i].data)
            collect(&b, MEG_DX + i, b.call.t[MEG_DX + i].box, sum->grad[i], shape_of(t, i));
    bench_close(&b);
}

static void run_pieces(const test_case *t, uint64_t *state, totals *sum)
{
    int64_t grain[MEG_AXES], one[MEG_AXES] = {1, 1, 1, 1, 1}, p[MEG_AXES], q[MEG_AXES];
    for (int a = 0; a < MEG_AXES; a++)
        grain[a] = t->op->grain ? t->op->grain(t->g, t->v, a) : 1;
    cuts outs = cut_box(&t->whole.out, grain, 2, state);
    cuts sums = cut_box(&t->whole.sum, one, t->op->sum ? 3 : INT32_MAX, state);
    for (bool on = meg_box_first(&outs.parts, p); on; on = meg_box_next(&outs.parts, p))
        for (bool go = meg_box_first(&sums.parts, q); go; go = meg_box_next(&sums.parts, q))
            run_piece(t, (meg_work){part_at(&outs, p), part_at(&sums, q)}, state, sum);
}

static error compare(const double *got, const double *expected, meg_box shape)
{
    error e = {0};
    for (int64_t k = 0; k < meg_box_size(&shape); k++)
        count_error(&e, got[k], expected[k]);
    return e;
}

static void test_pieces(const test_case *t)
{
    uint64_t state = meg_hash(t->name);
    bench whole = bench_open(t, MEG_F64, t->whole, NULL);
    run(&whole, MEG_EVAL);
    int64_t count = meg_box_size(&t->whole.out);
    for (int turn = 0; turn < CUTS; turn++) {
        totals sum = {doubles(count), doubles(count), {0}};
        for (int64_t k = 0; t->op->max && k < count; k++)
            sum.y[k] = sum.eval[k] = -INFINITY;
        for (int i = 0; i < t->v->inputs; i++) {
            meg_box shape = shape_of(t, i);
            sum.grad[i] = doubles(meg_box_size(&shape));
        }
        run_pieces(t, &state, &sum);
        check(t, "forward in pieces", compare(sum.y, t->y, t->whole.out), PIECES_TOLERANCE, 0);
        check(t, "eval in pieces", compare(sum.eval, whole.call.t[MEG_Y].data, t->whole.out),
              PIECES_TOLERANCE, 0);
        for (int i = 0; i < t->v->inputs; i++) {
            char what[64];
            snprintf(what, sizeof what, "gradient of %s in pieces", t->g->value[t->v->in[i]].name);
            check(t, what, compare(sum.grad[i], t->grad[i], shape_of(t, i)), PIECES_TOLERANCE,
                  NEGLIGIBLE * largest_gradient(t));
            free(sum.grad[i]);
        }
        free(sum.y), free(sum.eval);
    }
    bench_close(&whole);
}

static void test_op(void **op_at)
{
    const meg_op *op = *op_at;
    bool alive = false; /* all of an operator's samples making 0 would prove nothing */
    assert_non_null(op->samples);
    for (const meg_sample *s = op->samples; s->shapes; s++) {
        test_case t = case_open(op, s);
        test_masks(&t);
        test_whole(&t);
        if (!op->no_gradient) test_gradients(&t);
        test_pieces(&t);
        bool pulls = op->no_gradient || largest_gradient(&t) > 0;
        alive = alive || (pulls && norm(t.y, meg_box_size(&t.whole.out)) > 0);
        case_close(&t);
    }
    assert_true(alive);
}

int main(void)
{
    struct CMUnitTest test[256] = {0};
    size_t count = 0;
    for (; meg_op_at((int)count); count++) {
        const meg_op *op = meg_op_at((int)count);
        assert_true(count < 256);
        test[count] = (struct CMUnitTest){op->name, test_op, NULL, NULL, (void *)(uintptr_t)op};
    }
    return _cmocka_run_group_tests("operators", test, count, NULL, NULL);
}
