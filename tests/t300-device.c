/* The device core: the plain-C path equals the operators' kernels, in place too; instructions do
 * what they say; `check` shows what a wrong program would hide. */
#include "device_help.h"
#include "plain_op.h"

#include <math.h>

/* ---- every sample of every operator ---- */

static meg_request request_of(const plain_op *p, meg_pass pass)
{
    meg_request r = {.code = MEG_KERNEL, .graph = p->graph, .node = p->node, .pass = pass};
    r.work = meg_op_whole(p->graph, p->node);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        r.box[i] = p->t[i].box;
        r.dtype[i] = p->type[i];
    }
    return r;
}

static size_t bytes_of(const plain_op *p, int operand)
{
    return (size_t)(meg_box_size(&p->t[operand].box) * meg_dtype_bytes(p->type[operand]));
}

/* The operands that the pass is given, at their places. */
static void places(const plain_op *p, meg_pass pass, void *at[MEG_OPERANDS])
{
    const meg_op *op = p->node->op;
    meg_mask used = meg_op_reads(op, pass) | meg_op_writes(op, pass);
    for (int i = 0; i < MEG_OPERANDS; i++)
        at[i] = used & MEG_BIT(i) ? p->t[i].data : NULL;
}

static void fill(plain_op *p)
{
    for (int i = 0; i < MEG_OPERANDS; i++) {
        bool given = i < MEG_Y || (i >= MEG_DY && i < MEG_DX);
        int64_t count = given && p->t[i].data ? meg_box_size(&p->t[i].box) : 0;
        for (int64_t k = 0; k < count; k++) {
            double u = meg_random_uniform((meg_stream){.name = (uint64_t)i}, (uint64_t)k);
            bool real = p->type[i] == p->real;
            plain_set(p, i, k,
                      real ? (i == MEG_X || i >= MEG_DY ? u - 0.4 : u + 0.1) : floor(2 * u));
        }
    }
}

static void assert_same(const plain_op *want, const plain_op *got, int operand, const char *when)
{
    if (!want->t[operand].data) return;
    if (memcmp(want->t[operand].data, got->t[operand].data, bytes_of(want, operand)) == 0) return;
    for (int64_t i = 0; i < meg_box_size(&want->t[operand].box); i++) {
        double a = plain_get(want, operand, i), b = plain_get(got, operand, i);
        if (a != b)
            fail_msg("%s %s: operand %d, element %lld: expected %g, got %g", want->node->op->name,
                     when, operand, (long long)i, a, b);
    }
}

/* Y on X0, DX on DY: as the plan may do it. The overwritten operand is restored. */
static void run_in_place(meg_device *d, const plain_op *want, plain_op *p, meg_pass pass)
{
    meg_spec s;
    meg_request r = request_of(p, pass);
    meg_device_describe(d, &r, &s);
    if (!s.in_place) return;
    bool forward = s.in_place & MEG_BIT(MEG_Y);
    int from = forward ? MEG_X : MEG_DY, to = forward ? MEG_Y : MEG_DX;
    void *at[MEG_OPERANDS], *keep = malloc(bytes_of(p, from));
    places(p, pass, at);
    memcpy(keep, at[from], bytes_of(p, from));
    at[to] = at[from];
    run(d, &r, at);
    memcpy(p->t[to].data, at[from], bytes_of(p, from));
    memcpy(at[from], keep, bytes_of(p, from));
    free(keep);
    for (int i = 0; i < MEG_OPERANDS; i++)
        assert_same(want, p, i, "in place");
}

/* One slot for all gradients that are equal. */
static void run_shared(meg_device *d, const plain_op *want, plain_op *p, meg_pass pass)
{
    meg_spec s;
    meg_request r = request_of(p, pass);
    meg_device_describe(d, &r, &s);
    if (!s.shared) return;
    void *at[MEG_OPERANDS];
    places(p, pass, at);
    memset(at[MEG_DX], 0xFF, bytes_of(p, MEG_DX));
    for (int i = 1; i < p->node->inputs; i++) {
        bool equal = meg_box_equal(&r.box[MEG_DX + i], &r.box[MEG_DX]); /* else it is a sum */
        assert_true(equal == !!(s.shared & MEG_BIT(MEG_DX + i)));
        if (!equal) continue;
        assert_same(want, p, MEG_DX + i, "alone");
        at[MEG_DX + i] = at[MEG_DX];
    }
    run(d, &r, at);
    assert_same(want, p, MEG_DX, "shared");
}

/* `p` runs on the device, `want` by direct calls; forward comes first, so that aux is valid. */
static void compare_passes(meg_device *d, plain_op *want, plain_op *p)
{
    static const meg_pass order[] = {MEG_FORWARD,  MEG_REPLAY, MEG_STATE_PASS,
                                     MEG_BACKWARD, MEG_WEIGHT, MEG_EVAL};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!plain_run(want, order[i])) continue;
        void *at[MEG_OPERANDS];
        meg_request r = request_of(p, order[i]);
        places(p, order[i], at);
        run(d, &r, at);
        for (int k = 0; k < MEG_OPERANDS; k++)
            assert_same(want, p, k, meg_pass_name(order[i]));
        run_in_place(d, want, p, order[i]);
        run_shared(d, want, p, order[i]);
    }
}

static void samples_equal(const char *kind)
{
    meg_device *d = open_device(kind, 1);
    int ran = 0;
    for (int i = 0; meg_op_at(i); i++)
        for (const meg_sample *s = meg_op_at(i)->samples; s && s->shapes; s++, ran++) {
            meg_error e;
            plain_op want, p;
            const char *op = meg_op_at(i)->name;
            meg_dtype real = meg_device_real(d);
            if (plain_open(&e, op, s, real, &want) || plain_open(&e, op, s, real, &p))
                fail_msg("%s %s: %s", op, s->shapes, e.message);
            fill(&want);
            fill(&p);
            compare_passes(d, &want, &p);
            plain_close(&want);
            plain_close(&p);
        }
    assert_true(ran > 10);
    meg_device_close(d);
}

static void samples_ref(void **unused)
{
    (void)unused;
    samples_equal("ref");
}

static void samples_ref64(void **unused)
{
    (void)unused;
    samples_equal("ref64");
}

/* The kernels write all they say they write, or NaN would show. */
static void samples_check(void **unused)
{
    (void)unused;
    samples_equal("check");
}

static void adding_a_value_to_itself_is_not_in_place(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 1);
    meg_graph *g = meg_graph_create("twice");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){2, 3});
    int z = meg_graph_input(g, "z", 2, (int64_t[]){2, 3});
    meg_graph_add(g, "add", "a", "", 3, (int[]){x, z, x});
    meg_request r = {.code = MEG_KERNEL, .graph = g, .node = &g->node[0]};
    r.work = meg_op_whole(g, &g->node[0]);
    for (int i = 0; i < 3; i++)
        r.box[MEG_X + i] = r.box[MEG_Y] = g->value[x].shape;
    meg_spec s;
    meg_device_describe(d, &r, &s);
    assert_int_equal(s.in_place, 0);
    assert_string_equal(s.impl, "plain");
    assert_true(s.flops > 0 && s.traffic > 0);
    meg_graph_destroy(g);
    meg_device_close(d);
}

/* ---- instructions ---- */

static void copy_fills_where_boxes_meet(void **unused)
{
    (void)unused;
    meg_device *d = open_device("check", 1);
    meg_request r = instruction(MEG_COPY, meg_box_of(1, 1, 1, 2, 4), MEG_I32);
    r.box[MEG_Y].lo[MEG_H] = 1, r.box[MEG_Y].hi[MEG_H] = 3; /* one row of two is common */
    r.box[MEG_Y].lo[MEG_W] = 2, r.box[MEG_Y].hi[MEG_W] = 5;
    int32_t x[2 * 4] = {0, 1, 2, 3, 10, 11, 12, 13}, y[2 * 3] = {-7, -7, -7, -7, -7, -7};
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = x, [MEG_Y] = y});
    assert_memory_equal(y, ((int32_t[]){12, 13, -7, -7, -7, -7}), sizeof y);

    r.box[MEG_Y] = r.box[MEG_X];
    int32_t all[2 * 4];
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = x, [MEG_Y] = all});
    assert_memory_equal(all, x, sizeof x);
    meg_device_close(d);
}

static void add_and_zero_take_any_format(void **unused)
{
    (void)unused;
    meg_device *d = open_device("check", 1);
    meg_request r = instruction(MEG_ADD, meg_box_of(1, 5, 1, 1, 2), MEG_F32);
    r.format[MEG_X] = r.format[MEG_X + 1] = r.format[MEG_Y] = MEG_FORMAT_C8;
    float a[8 * 2], b[8 * 2], y[8 * 2]; /* 5 channels in a block of 8, 2 pixels */
    for (int i = 0; i < 16; i++)
        a[i] = (float)i, b[i] = 100;
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = a, [MEG_X + 1] = b, [MEG_Y] = y});
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = a, [MEG_X + 1] = b, [MEG_Y] = a});
    for (int i = 0; i < 16; i++)
        assert_true(y[i] == (float)(100 + i) && a[i] == y[i]);
    r.code = MEG_ZERO;
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_Y] = y});
    for (int i = 0; i < 16; i++)
        assert_true(y[i] == 0);
    meg_device_close(d);
}

static void add_of_other_types(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref64", 1);
    meg_request r = instruction(MEG_ADD, meg_box_of(1, 2, 1, 1, 1), MEG_F64);
    double y[2], a[2] = {1, 2}, b[2] = {0x1p-50, 5};
    run(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = a, [MEG_X + 1] = b, [MEG_Y] = y});
    assert_true(y[0] == 1 + 0x1p-50 && y[1] == 7);
    r = instruction(MEG_ADD, meg_box_of(1, 1, 1, 1, 1), MEG_I32);
    int32_t right = 40;
    run(d, &r,
        (void *[MEG_OPERANDS]){[MEG_X] = &right, [MEG_X + 1] = &(int32_t){2}, [MEG_Y] = &right});
    assert_int_equal(right, 42);
    meg_device_close(d);
}

static void momentum_f32(const meg_update *u) /* a rule that shows every argument */
{
    float *w = u->weight, *v = u->state[0];
    const float *g = u->gradient;
    for (int64_t i = 0; i < u->count; i++) {
        v[i] = *(const float *)u->settings * v[i] + g[i];
        w[i] -= (float)u->scalars->lr * v[i];
    }
}

static void momentum_f64(const meg_update *u)
{
    double *w = u->weight;
    for (int64_t i = 0; i < u->count; i++)
        w[i] -= u->scalars->lr * ((const double *)u->gradient)[i];
}

static void update_works_in_place(void **unused)
{
    (void)unused;
    const meg_optimizer rule = {
        .name = "rule", .states = 1, .f32 = momentum_f32, .f64 = momentum_f64};
    float settings = 0.5f;
    meg_scalars scalars = {.lr = 0.25, .step = 1, .scale = 1};
    meg_request r = instruction(MEG_UPDATE, meg_box_of(3, 1, 1, 1, 1), MEG_F32);
    r.optimizer = &rule;
    r.settings = &settings;

    meg_device *d = open_device("check", 1); /* must not poison weights and states */
    float w[4] = {1, 2, 3, 99}, g[3] = {4, 8, 12}, v[3] = {8, 8, 8};
    run(d, &r,
        (void *[MEG_OPERANDS]){
            [MEG_X] = w, [MEG_X + 1] = g, [MEG_X + 2] = &scalars, [MEG_AUX] = v});
    assert_memory_equal(w, ((float[]){-1, -1, -1, 99}), sizeof w);
    assert_memory_equal(v, ((float[]){8, 12, 16}), sizeof v);
    meg_device_close(d);

    d = open_device("ref64", 1);
    for (int i = 0; i < MEG_OPERANDS; i++)
        r.dtype[i] = MEG_F64;
    double weight[3] = {1, 2, 3}, gradient[3] = {4, 8, 12};
    run(d, &r,
        (void *[MEG_OPERANDS]){[MEG_X] = weight, [MEG_X + 1] = gradient, [MEG_X + 2] = &scalars});
    assert_memory_equal(weight, ((double[]){0, 0, 0}), sizeof weight);
    meg_device_close(d);
}

static void refusals_say_why(void **unused)
{
    (void)unused;
    meg_error e;
    meg_prepared *k = NULL;
    meg_device *d = open_device("check", 1);
    meg_request r = instruction(MEG_COPY, meg_box_of(1, 8, 1, 1, 1), MEG_F32);
    r.format[MEG_Y] = MEG_FORMAT_C8;
    assert_int_equal(meg_device_prepare(d, &e, &r, &k), MEG_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "copy from format plain to c8"));
    r = instruction(MEG_UPDATE, meg_box_of(8, 8, 1, 3, 3), MEG_F32);
    r.format[MEG_X] = MEG_FORMAT_OIx8i8o;
    assert_int_equal(meg_device_prepare(d, &e, &r, &k), MEG_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "OIx8i8o"));
    r.code = MEG_LOAD;
    assert_int_equal(meg_device_prepare(d, &e, &r, &k), MEG_EARG);
    assert_non_null(strstr(e.message, "engine"));
    assert_null(k);
    meg_device_close(d);

    assert_int_equal(meg_device_open(&e, "gpu", 1, &d), MEG_EARG);
    assert_non_null(strstr(e.message, "ref64"));
    assert_int_equal(meg_device_open(&e, "ref", -1, &d), MEG_EARG);
}

/* ---- check ---- */

static void ones(void *nothing, void *to)
{
    (void)nothing;
    ((float *)to)[0] = ((float *)to)[1] = 1;
}

static void reading_freed_memory_shows(void **unused)
{
    (void)unused;
    meg_error e;
    meg_arena *a = NULL;
    meg_device *d = open_device("check", 1);
    meg_request r = instruction(MEG_ADD, meg_box_of(1, 2, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    int64_t at[MEG_OPERANDS];
    float before[2], after[2];
    assert_int_equal(meg_arena_new(d, &e, &(meg_arena_spec){.bytes = 192}, &a), MEG_OK);
    for (int o = 0; o < MEG_OPERANDS; o++)
        at[o] = -1;
    at[MEG_X] = 0, at[MEG_X + 1] = 64, at[MEG_Y] = 128;
    meg_arena_load(a, &(meg_stretch){0, 8}, ones, NULL);
    meg_arena_load(a, &(meg_stretch){64, 72}, ones, NULL);
    meg_arena_launch(a, k, at, &moment);
    meg_arena_read(a, 128, 8, before);
    meg_arena_release(a, 0, 8);
    meg_arena_launch(a, k, at, &moment);
    meg_arena_read(a, 128, 8, after);
    meg_device_wait(d);
    assert_true(before[0] == 2 && before[1] == 2);
    assert_true(isnan(after[0]) && isnan(after[1]));
    meg_prepared_free(k);
    meg_arena_free(a);
    meg_device_close(d);
}

static void leave_a_hole(const meg_call *c)
{
    float *y = c->t[MEG_Y].data;
    y[0] = 1;
    y[2] = 3;
}

static void incomplete_writing_shows(void **unused)
{
    (void)unused;
    const meg_kernels kernels = {.run = {[MEG_FORWARD] = leave_a_hole}};
    const meg_op op = {
        .name = "hole", .writes = {MEG_BIT(MEG_Y)}, .f32 = &kernels, .f64 = &kernels};
    const meg_node node = {.name = "hole", .op = &op};
    meg_request r = instruction(MEG_KERNEL, meg_box_of(1, 3, 1, 1, 1), MEG_F32);
    r.node = &node;
    static const char *const kinds[] = {"ref", "check"};
    for (int i = 0; i < 2; i++) {
        float y[4] = {7, 7, 7, 7};
        meg_device *d = open_device(kinds[i], 1);
        run(d, &r, (void *[MEG_OPERANDS]){[MEG_Y] = y});
        assert_true(y[0] == 1 && y[2] == 3 && y[3] == 7);
        assert_true(i ? isnan(y[1]) : y[1] == 7);
        meg_device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_ref),
        cmocka_unit_test(samples_ref64),
        cmocka_unit_test(samples_check),
        cmocka_unit_test(adding_a_value_to_itself_is_not_in_place),
        cmocka_unit_test(copy_fills_where_boxes_meet),
        cmocka_unit_test(add_and_zero_take_any_format),
        cmocka_unit_test(add_of_other_types),
        cmocka_unit_test(update_works_in_place),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(reading_freed_memory_shows),
        cmocka_unit_test(incomplete_writing_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
