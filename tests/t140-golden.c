/* The plain kernels give what PyTorch gives: tests/golden/ops.safetensors (tools/make_golden.py)
 * holds inputs that float represents exactly, and results that PyTorch computed in double.
 *
 * Tolerances, relative by norm: 1e-10 in double; 1e-5 in float, whose results are roundings of sums
 * in double. The gradient of a bias behind which a mean is taken is zero but for rounding, so the
 * denominator is at least 1e-3 (the numbers are of order one).
 */
#include "import/safetensors/safetensors.h"
#include "plain_op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char path[] = MEG_SOURCE_DIR "/tests/golden/ops.safetensors";

typedef struct golden_case {
    char name[64], op[32], shapes[64], attrs[128];
} golden_case;

typedef struct golden { /* one case in one precision */
    const meg_safetensors *file;
    const golden_case *which;
    plain_op op;
    int compared;
} golden;

/* Tensor "<case>.<key><i>" (i < 0: "<case>.<key>"); false if the file has none. */
static bool find(const golden *g, const char *key, int i, meg_saved *out)
{
    char name[128], number[16] = "";
    if (i >= 0) snprintf(number, sizeof number, "%d", i);
    snprintf(name, sizeof name, "%s.%s%s", g->which->name, key, number);
    int at = meg_safetensors_find(g->file, name);
    meg_error e = {0};
    if (at >= 0 && meg_safetensors_at(g->file, &e, at, out)) fail_msg("%s", e.message);
    return at >= 0;
}

static double number_at(const meg_saved *s, int64_t i)
{
    const char *at = (const char *)s->data + i * meg_dtype_bytes(s->dtype);
    double real;
    float single;
    int32_t whole;
    switch (s->dtype) {
    case MEG_F64:
        return memcpy(&real, at, sizeof real), real;
    case MEG_F32:
        return memcpy(&single, at, sizeof single), (double)single;
    default:
        return memcpy(&whole, at, sizeof whole), whole;
    }
}

static int64_t size_of(const golden *g, int operand, const meg_saved *s)
{
    int64_t size = 1, mine = meg_box_size(&g->op.t[operand].box);
    for (int i = 0; i < s->rank; i++)
        size *= s->dims[i];
    if (size != mine)
        fail_msg("%s: PyTorch has %lld elements, Megalith %lld", s->name, (long long)size,
                 (long long)mine);
    return size;
}

static void load(golden *g, const char *key, int i, int operand)
{
    meg_saved s;
    if (!find(g, key, i, &s)) fail_msg("%s: no %s%d in the file", g->which->name, key, i);
    int64_t size = size_of(g, operand, &s);
    for (int64_t k = 0; k < size; k++)
        plain_set(&g->op, operand, k, number_at(&s, k));
}

/* Compares an operand with a tensor of the file, if it is there. */
static void compare(golden *g, const char *key, int i, int operand)
{
    meg_saved s;
    if (!find(g, key, i, &s)) return;
    int64_t size = size_of(g, operand, &s);
    double off = 0, norm = 0, tolerance = g->op.real == MEG_F64 ? 1e-10 : 1e-5;
    for (int64_t k = 0; k < size; k++) {
        double want = number_at(&s, k), got = plain_get(&g->op, operand, k);
        off += (got - want) * (got - want);
        norm += want * want;
    }
    double error = sqrt(off) / fmax(sqrt(norm), 1e-3);
    if (!(error <= tolerance))
        fail_msg("%s in %s: off by %.2e, allowed %.0e", s.name, meg_dtype_name(g->op.real), error,
                 tolerance);
    g->compared++;
}

static void run_case(golden *g, meg_dtype real)
{
    const meg_sample sample = {g->which->shapes, g->which->attrs};
    meg_error e = {0};
    if (plain_open(&e, g->which->op, &sample, real, &g->op)) fail_msg("%s", e.message);
    plain_op *p = &g->op;
    for (int i = 0; i < p->node->inputs; i++)
        load(g, i < p->data ? "x" : "w", i < p->data ? i : i - p->data, MEG_X + i);
    load(g, "dy", -1, MEG_DY);

    plain_run(p, MEG_EVAL);
    compare(g, "eval", -1, MEG_Y);
    bool first = p->node->op->state_first;
    if (first) plain_run(p, MEG_STATE_PASS);
    plain_run(p, MEG_FORWARD);
    compare(g, "y", -1, MEG_Y);
    plain_run(p, MEG_BACKWARD);
    plain_run(p, MEG_WEIGHT);
    if (!first) plain_run(p, MEG_STATE_PASS);
    for (int i = 0; i < p->node->inputs; i++) {
        compare(g, i < p->data ? "dx" : "dw", i < p->data ? i : i - p->data, MEG_DX + i);
        if (i >= p->data) compare(g, "after", i - p->data, MEG_X + i);
    }
    plain_close(p);
}

/* "name|operator|shapes|attributes;..."; moves on to the next case; false at the end. */
static bool next_case(const char **at, golden_case *out)
{
    if (!**at) return false;
    *out = (golden_case){{0}, {0}, {0}, {0}};
    int parts = sscanf(*at, "%63[^|]|%31[^|]|%63[^|]|%127[^;]", out->name, out->op, out->shapes,
                       out->attrs);
    if (parts < 3) fail_msg("not a case: %s", *at);
    *at += strcspn(*at, ";");
    if (**at) ++*at;
    return true;
}

static void run_all(meg_dtype real)
{
    meg_error e = {0};
    meg_safetensors *file = NULL;
    golden_case which;
    int cases = 0, compared = 0;
    if (meg_safetensors_open(&e, path, &file)) fail_msg("%s", e.message);
    const char *at = meg_safetensors_note(file, "cases");
    assert_non_null(at);
    for (; next_case(&at, &which); cases++) {
        golden g = {.file = file, .which = &which};
        run_case(&g, real);
        assert_true(g.compared >= 2); /* an output and a gradient */
        compared += g.compared;
    }
    meg_safetensors_close(file);
    print_message("%d cases, %d tensors\n", cases, compared);
    assert_true(cases >= 34);
    assert_true(compared >= 118); /* all results of the file */
}

static void test_float(void **state)
{
    (void)state;
    run_all(MEG_F32);
}

static void test_double(void **state)
{
    (void)state;
    run_all(MEG_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float),
        cmocka_unit_test(test_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
