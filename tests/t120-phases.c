/* Phases give what the fused operator gives: outputs, all gradients, running statistics; in double,
 * to 1e-12 of the largest element (the same sums in another order). Both also when their work is
 * cut in two along any axis that may be cut, the parts run one after the other into storage that is
 * larger than they need, and their results are summed (of `max` operators: the larger is taken).
 */
#include "graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PARTS = 2,
    NODES = 6,
    VALUES = 16,
    WHOLE = -1
};
static const double tolerance = 1e-12;

typedef struct run {
    meg_graph *g;
    int axis;            /* the work is cut along it; WHOLE: not at all */
    void *value[VALUES]; /* double, labels int32_t; whole boxes */
    double *gradient[VALUES];
    meg_array aux[NODES][PARTS][MEG_AUXES];
} run;

typedef struct phase_case {
    const char *op, *attrs;
    int rank;
    int64_t dims[MEG_AXES];
    bool weighted; /* with weights of the classes */
} phase_case;

static double uniform(const char *name, int64_t i)
{
    return meg_random_uniform((meg_stream){7, 0, meg_hash(name)}, (uint64_t)i) * 4 - 2;
}

static int64_t size_of(const run *r, int value)
{
    return meg_box_size(&r->g->value[value].shape);
}

/* Leaves: numbers that depend on the name. Labels run from -1 to one past the last class. */
static void fill(run *r, int id)
{
    const meg_value *x = &r->g->value[id];
    double *real = r->value[id];
    int32_t *label = r->value[id];
    double classes = (double)r->g->value[0].shape.hi[MEG_C];
    for (int64_t i = 0; i < size_of(r, id); i++) {
        double u = uniform(x->name, i);
        if (x->dtype == MEG_I32) label[i] = (int32_t)((u + 2) / 4 * (classes + 2)) - 1;
        else if (strcmp(x->name, "count") == 0) real[i] = 5;
        else if (strstr(x->name, "running_var")) real[i] = 0.5 + fabs(u);
        else real[i] = u;
    }
}

static void open_run(run *r, meg_graph *g, int axis)
{
    *r = (run){.g = g, .axis = axis};
    assert_true(g->values <= VALUES && g->nodes <= NODES);
    for (int i = 0; i < g->values; i++) {
        r->value[i] = calloc((size_t)size_of(r, i), sizeof(double));
        r->gradient[i] = calloc((size_t)size_of(r, i), sizeof(double));
        if (g->value[i].maker < 0) fill(r, i);
    }
}

static void close_run(run *r)
{
    for (int i = 0; i < r->g->values; i++)
        free(r->value[i]), free(r->gradient[i]);
    for (int i = 0; i < NODES * PARTS * MEG_AUXES; i++)
        free((&r->aux[0][0][0])[i].data);
}

/* The part of a node's work: halves of the output if it has the axis, else of the sum. Returns
 * false for the second part of what is not cut. */
static bool part_of(const run *r, const meg_node *v, int part, meg_work *w)
{
    *w = meg_op_whole(r->g, v);
    if (r->axis == WHOLE) return part == 0;
    meg_box *b = meg_extent(&w->out, r->axis) > 1 ? &w->out : &w->sum;
    int64_t grain = b == &w->sum || !v->op->grain ? 1 : v->op->grain(r->g, v, r->axis);
    int64_t middle = grain ? meg_extent(b, r->axis) / 2 / grain * grain : 0;
    if (middle == 0) return part == 0;
    *(part ? &b->lo[r->axis] : &b->hi[r->axis]) = middle;
    return true;
}

static meg_array *aux_of(run *r, const meg_node *v, int part, int i, const meg_work *w)
{
    meg_array *t = &r->aux[v->id][part][i];
    if (t->data) return t;
    meg_dtype type;
    v->op->aux(r->g, v, w, i, &t->box, &type);
    t->data = calloc((size_t)meg_box_size(&t->box), sizeof(double));
    return t;
}

/* The memory of an operand on whole boxes; NULL: there is none. */
static void *operand(const run *r, const meg_node *v, int i, int *id)
{
    *id = -1;
    if (i < MEG_Y && i < v->inputs) return r->value[*id = v->in[i]];
    if (i >= MEG_Y && i < MEG_AUX && i - MEG_Y < v->outputs)
        return r->value[*id = v->out[i - MEG_Y]];
    if (i >= MEG_DY && i < MEG_DX && i - MEG_DY < v->outputs)
        return r->gradient[*id = v->out[i - MEG_DY]];
    if (i >= MEG_DX && i < MEG_SCRATCH && i - MEG_DX < v->inputs)
        return r->gradient[*id = v->in[i - MEG_DX]];
    return NULL;
}

/* Adds what a part wrote to the total, or takes the larger, and frees it. */
static void settle(const run *r, const meg_call *c, meg_mask written, bool max)
{
    for (int i = 0; i < MEG_OPERANDS; i++) {
        int id;
        double *total = operand(r, c->node, i, &id), *made = c->t[i].data;
        if (!(written & MEG_BIT(i)) || !made || !total || made == total) continue;
        for (int64_t k = 0; k < size_of(r, id); k++)
            total[k] = max ? fmax(total[k], made[k]) : total[k] + made[k];
        free(made);
    }
}

static void run_part(run *r, const meg_node *v, meg_pass pass, int part, const meg_work *w)
{
    meg_mask reads = meg_op_reads(v->op, pass), writes = meg_op_writes(v->op, pass);
    meg_call c = {.graph = r->g, .node = v, .work = *w, .moment = {1, 1, 0}};
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!((reads | writes) & MEG_BIT(i))) continue;
        if (i >= MEG_AUX && i < MEG_DY) {
            if (i - MEG_AUX < v->op->auxes) c.t[i] = *aux_of(r, v, part, i - MEG_AUX, w);
            continue;
        }
        int id;
        void *at = operand(r, v, i, &id);
        if (!at) continue;
        c.t[i] = (meg_array){r->g->value[id].shape, at};
        if (!(writes & MEG_BIT(i)) || (reads & MEG_BIT(i))) continue; /* states: in place */
        c.t[i].data = malloc((size_t)size_of(r, id) * sizeof(double));
        memset(c.t[i].data, 0xff, (size_t)size_of(r, id) * sizeof(double)); /* NaN: kernels set */
    }
    meg_op_kernel(v->op, pass, MEG_F64)(&c);
    settle(r, &c, writes, v->op->max);
}

static void run_pass(run *r, const meg_node *v, meg_pass pass)
{
    meg_work w;
    if (!meg_op_has(v->op, pass)) return;
    if (pass <= MEG_REPLAY) /* outputs are summed up anew */
        for (int64_t i = 0; i < size_of(r, v->out[0]); i++)
            ((double *)r->value[v->out[0]])[i] = v->op->max ? -INFINITY : 0;
    for (int part = 0; part < PARTS; part++)
        if (part_of(r, v, part, &w)) run_part(r, v, pass, part, &w);
}

static void run_all(run *r, meg_pass forward)
{
    for (int i = 0; i < r->g->nodes; i++)
        run_pass(r, &r->g->node[i], forward);
}

/* One training step up to the gradients; the output's is random. */
static void train(run *r)
{
    int out = r->g->node[r->g->nodes - 1].out[0], axis = r->axis;
    run_all(r, MEG_FORWARD);
    for (int64_t i = 0; i < size_of(r, out); i++)
        r->gradient[out][i] = uniform("seed", i);
    for (int i = r->g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &r->g->node[i];
        run_pass(r, v, MEG_BACKWARD);
        if (!v->op->auxes) r->axis = WHOLE; /* moments are whole: once is enough */
        run_pass(r, v, MEG_STATE_PASS);
        r->axis = axis;
    }
}

static void compare(const char *what, int64_t count, const double *want, const double *got)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs(want[i]));
        off = fabs(want[i] - got[i]) <= off ? off : fabs(want[i] - got[i]); /* keeps NaN */
    }
    if (!(most > 1e-3)) fail_msg("%s: the reference is degenerate, largest element %g", what, most);
    if (!(off <= tolerance * most))
        fail_msg("%s: off by %g of %g, expected %g", what, off, most, tolerance * most);
}

/* All leaves of `got` are named as in `want`; outputs are those of the last node. */
static void compare_runs(const run *want, const run *got, const char *title)
{
    char what[256];
    int out = want->g->node[0].out[0], made = got->g->node[got->g->nodes - 1].out[0];
    snprintf(what, sizeof what, "%s: output", title);
    compare(what, size_of(want, out), want->value[out], got->value[made]);
    for (int i = 0; i < want->g->values; i++) {
        const meg_value *x = &want->g->value[i];
        bool input = strcmp(x->name, "x") == 0, state = x->kind == MEG_STATE;
        if (!input && !state && x->kind != MEG_PARAMETER) continue;
        int same = meg_graph_find_value(got->g, x->name);
        assert_true(same >= 0);
        snprintf(what, sizeof what, "%s: %s of %s", title, state ? "new" : "gradient", x->name);
        if (state) compare(what, size_of(want, i), want->value[i], got->value[same]);
        else compare(what, size_of(want, i), want->gradient[i], got->gradient[same]);
    }
}

static int leaves(meg_graph *g, const phase_case *k, int in[MEG_INPUTS])
{
    int64_t dims[MEG_AXES] = {k->dims[0]};
    in[0] = meg_graph_input(g, "x", k->rank, k->dims);
    if (strcmp(k->op, "softmax_xent") != 0 && strcmp(k->op, "dice") != 0) return 1;
    for (int i = 2; i < k->rank; i++)
        dims[i - 1] = k->dims[i];
    in[1] = meg_graph_label(g, "labels", k->rank - 1, dims);
    in[2] = meg_graph_input(g, "count", 1, (int64_t[]){1});
    if (!k->weighted) return 3;
    in[3] = meg_graph_input(g, "weights", 2, (int64_t[]){1, k->dims[1]});
    return 4;
}

static meg_graph *fused_graph(const phase_case *k)
{
    meg_graph *g = meg_graph_create("fused");
    int in[MEG_INPUTS], count = leaves(g, k, in);
    if (meg_graph_add(g, k->op, "node", k->attrs, count, in) < 0) fail_msg("%s", g->error.message);
    return g;
}

static meg_graph *phased_graph(const phase_case *k, const meg_graph *fused)
{
    const meg_node *v = &fused->node[0];
    meg_graph *g = meg_graph_create("phased");
    int in[MEG_INPUTS], count = leaves(g, k, in);
    meg_weight_spec spec[MEG_INPUTS];
    int weights = v->op->weights ? v->op->weights(fused, v, spec) : 0;
    for (int i = 0; i < weights; i++, count++)
        in[count] = meg_graph_parameter(g, fused->value[v->in[count]].name, &spec[i]);
    int out = v->op->expand(g, v, in);
    if (out < 0) fail_msg("%s", g->error.message);
    assert_int_equal(out, g->node[g->nodes - 1].out[0]);
    assert_int_equal(g->value[out].rank, fused->value[v->out[0]].rank);
    assert_true(meg_box_equal(&g->value[out].shape, &fused->value[v->out[0]].shape));
    return g;
}

/* Trains and evaluates a graph, its work cut along `axis`, against the fused one in one piece. */
static void check_against(const run *trained, const run *evaluated, meg_graph *g, int axis)
{
    char title[128];
    run r;
    snprintf(title, sizeof title, "%s %s, cut along axis %d", trained->g->node[0].op->name, g->name,
             axis);
    open_run(&r, g, axis);
    train(&r);
    compare_runs(trained, &r, title);
    close_run(&r);

    open_run(&r, g, axis);
    run_all(&r, MEG_EVAL);
    int out = evaluated->g->node[0].out[0], made = g->node[g->nodes - 1].out[0];
    compare(title, size_of(evaluated, out), evaluated->value[out], r.value[made]);
    close_run(&r);
}

/* Replay makes the very bits of forward. */
static void check_replay(const run *trained)
{
    int out = trained->g->node[0].out[0];
    size_t bytes = (size_t)size_of(trained, out) * sizeof(double);
    run r;
    open_run(&r, trained->g, WHOLE);
    run_all(&r, MEG_FORWARD);
    run_all(&r, MEG_REPLAY);
    assert_memory_equal(r.value[out], trained->value[out], bytes);
    close_run(&r);
}

static void check_case(const phase_case *k)
{
    meg_graph *fused = fused_graph(k), *phased = phased_graph(k, fused);
    run trained, evaluated;
    open_run(&trained, fused, WHOLE);
    train(&trained);
    open_run(&evaluated, fused, WHOLE);
    run_all(&evaluated, MEG_EVAL);
    for (int axis = WHOLE; axis < MEG_AXES; axis++) {
        check_against(&trained, &evaluated, phased, axis);
        check_against(&trained, &evaluated, fused, axis);
    }
    check_replay(&trained);
    close_run(&trained);
    close_run(&evaluated);
    meg_graph_destroy(fused);
    meg_graph_destroy(phased);
}

static void check_cases(const phase_case *k)
{
    for (; k->op; k++)
        check_case(k);
}

static void test_batchnorm(void **state)
{
    (void)state;
    check_cases((phase_case[]){
        {"batchnorm", "", 2, {6, 5}, false},
        {"batchnorm", "relu=1 epsilon=1e-3", 3, {3, 4, 7}, false},
        {"batchnorm", "norm=2 momentum=0.3", 4, {4, 3, 3, 5}, false},
        {"batchnorm", "norm=2 relu=1", 4, {5, 2, 4, 3}, false}, /* the last group is smaller */
        {"batchnorm", "norm=3 variance=population relu=1", 5, {4, 3, 2, 3, 4}, false},
        {"batchnorm", "norm=1", 4, {3, 2, 3, 3}, false},
        {0}});
}

/* Groups that cuts along channels meet, groups that they go through, pixels, elements. */
static void test_sets(void **state)
{
    (void)state;
    check_cases((phase_case[]){{"groupnorm", "groups=2", 2, {3, 6}, false},
                               {"groupnorm", "groups=3 relu=1", 4, {2, 6, 5, 3}, false},
                               {"groupnorm", "groups=1 epsilon=1e-3", 3, {3, 5, 7}, false},
                               {"groupnorm", "groups=2 affine=0", 5, {1, 6, 2, 3, 4}, false},
                               {"instancenorm", "", 4, {2, 3, 5, 4}, false},
                               {"instancenorm", "affine=1 relu=1", 5, {2, 3, 2, 3, 4}, false},
                               {"instancenorm", "affine=1", 3, {1, 3, 150}, false},
                               {"layernorm", "", 2, {3, 7}, false},
                               {"layernorm", "lone=1", 3, {2, 5, 9}, false},
                               {"layernorm", "epsilon=1e-3", 3, {2, 5, 150}, false},
                               {"layernorm", "affine=0", 5, {2, 5, 2, 3, 4}, false},
                               {"layernorm", "axes=all", 4, {3, 4, 3, 5}, false},
                               {"layernorm", "axes=all affine=0", 3, {2, 5, 9}, false},
                               {0}});
}

static void test_gap(void **state)
{
    (void)state;
    check_cases((phase_case[]){{"gap", "", 3, {3, 5, 7}, false},
                               {"gap", "", 4, {1, 4, 3, 5}, false},
                               {"gap", "", 5, {2, 3, 2, 3, 4}, false},
                               {0}});
}

static void test_softmax_xent(void **state)
{
    (void)state;
    check_cases((phase_case[]){{"softmax_xent", "", 2, {9, 7}, false},
                               {"softmax_xent", "", 3, {3, 5, 7}, false},
                               {"softmax_xent", "", 4, {2, 4, 3, 5}, false},
                               {"softmax_xent", "", 5, {2, 3, 2, 3, 4}, false},
                               {"softmax_xent", "", 3, {3, 5, 7}, true},
                               {"softmax_xent", "smoothing=0.2 ignore=1", 4, {2, 4, 3, 5}, false},
                               {"softmax_xent", "smoothing=0.1 ignore=0", 4, {2, 4, 3, 5}, true},
                               {0}});
}

static void test_softmax(void **state)
{
    (void)state;
    check_cases((phase_case[]){{"softmax", "", 2, {9, 7}, false},
                               {"softmax", "log=1", 4, {2, 4, 3, 5}, false},
                               {"softmax", "", 4, {2, 4, 3, 5}, false},
                               {"softmax", "", 5, {2, 3, 2, 3, 4}, false},
                               {0}});
}

static void test_dice(void **state)
{
    (void)state;
    check_cases((phase_case[]){{"dice", "", 3, {3, 5, 7}, false},
                               {"dice", "mode=sigmoid ignore=2", 4, {2, 4, 3, 5}, false},
                               {"dice", "epsilon=1", 5, {2, 3, 2, 3, 4}, false},
                               {"dice", "mode=sigmoid", 4, {2, 1, 3, 5}, false},
                               {0}});
}

/* The running statistics by hand: two groups of one channel, (1, 3) and (5, 9); momentum 0.5. */
static void test_running(void **state)
{
    (void)state;
    phase_case k = {"batchnorm", "norm=2 momentum=0.5", 2, {4, 1}, false};
    meg_graph *g = fused_graph(&k);
    run r;
    open_run(&r, g, WHOLE);
    memcpy(r.value[0], (double[]){1, 3, 5, 9}, 4 * sizeof(double));
    double *mean = r.value[meg_graph_find_value(g, "node.running_mean")];
    double *var = r.value[meg_graph_find_value(g, "node.running_var")];
    *mean = 0, *var = 1;
    train(&r);
    assert_true(*mean == 0.5 * (0.5 * 0 + 0.5 * 2) + 0.5 * 7);
    assert_true(*var == 0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 8); /* unbiased: 2 and 8 */
    close_run(&r);
    meg_graph_destroy(g);
}

/* A large mean: E[x^2] - E[x]^2 would lose all digits of the variance, two sums lose none. */
static void test_large_mean(void **state)
{
    (void)state;
    phase_case k = {"batchnorm", "epsilon=0", 2, {4, 1}, false};
    meg_graph *g = fused_graph(&k);
    run r;
    open_run(&r, g, WHOLE);
    memcpy(r.value[0], (double[]){1e9 + 1, 1e9 + 3, 1e9 + 5, 1e9 + 7}, 4 * sizeof(double));
    run_all(&r, MEG_FORWARD);
    assert_true(*(double *)r.aux[0][0][1].data == 5);
    close_run(&r);
    meg_graph_destroy(g);
}

static void test_messages(void **state)
{
    (void)state;
    meg_graph *g = meg_graph_create("wrong");
    int a = meg_graph_input(g, "a", 4, (int64_t[]){2, 3, 4, 5});
    int b = meg_graph_input(g, "b", 4, (int64_t[]){2, 3, 4, 6});
    assert_int_equal(meg_graph_add(g, "add", "join", "", 2, (int[]){a, b}), -1);
    assert_string_equal(g->error.message,
                        "join: 'a' is 2x3x4x5, but 'b' is 2x3x4x6: along each axis add wants the "
                        "first's extent, or 1");
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batchnorm), cmocka_unit_test(test_sets),
        cmocka_unit_test(test_gap),       cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_softmax),   cmocka_unit_test(test_dice),
        cmocka_unit_test(test_running),   cmocka_unit_test(test_large_mean),
        cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
