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
#include "op_case.h"

#include <float.h>

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

/* Masks have no gradient that would show what they are of; ties are on no grid. */
static void test_relations(void **state)
{
    static const struct {
        const char *words;
        double holds[4]; /* for 1 2, 1 1, 2 1, NaN 1 */
    } rows[] = {
        {"relation=less", {1, 0, 0, 0}},    {"relation=less_equal", {1, 1, 0, 0}},
        {"relation=greater", {0, 0, 1, 0}}, {"relation=greater_equal", {0, 1, 1, 0}},
        {"relation=equal", {0, 1, 0, 0}},   {"relation=not_equal", {1, 0, 1, 1}},
    };
    static const double a[] = {1, 1, 2, NAN}, b[] = {2, 1, 1, 1};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        meg_sample pair = {"1x4 1x4", rows[i].words};
        test_case t = case_open(meg_op_find("compare"), &pair);
        memcpy(t.in[0], a, sizeof a);
        memcpy(t.in[1], b, sizeof b);
        bench m = bench_open(&t, MEG_F64, t.whole, NULL);
        run(&m, MEG_FORWARD);
        for (int k = 0; k < 4; k++)
            if (get(&m, MEG_Y, k) != rows[i].holds[k])
                fail_msg("%s: of %g and %g: %g", rows[i].words, a[k], b[k], get(&m, MEG_Y, k));
        bench_close(&m);
        case_close(&t);
    }
}

int main(void)
{
    struct CMUnitTest test[256] = {0};
    size_t count = 0;
    for (; meg_op_at((int)count); count++) {
        const meg_op *op = meg_op_at((int)count);
        assert_true(count < 255);
        test[count] = (struct CMUnitTest){op->name, test_op, NULL, NULL, (void *)(uintptr_t)op};
    }
    test[count++] = (struct CMUnitTest)cmocka_unit_test(test_relations);
    return _cmocka_run_group_tests("operators", test, count, NULL, NULL);
}
