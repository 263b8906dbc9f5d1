/* An operator of the registry under test: a graph of one node with numbers for its inputs, and the
 * operands of a work in one precision, in storage as large as the test likes.
 *
 * A kernel is given the operands that its masks name and no others; all else is NaN or absent.
 * Inputs lie on a shuffled grid: no two are equal and none is 0, so that differences meet no tie and
 * no kink.
 */
#ifndef MEG_TESTS_OP_CASE_H
#define MEG_TESTS_OP_CASE_H

#include "numbers_help.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    {"outside", 1, false, true},     /* targets */
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
    {"log", 0, true, false},         /* defined above 0 only */
    {"pow", 0, true, false},         /* the same, of broken exponents */
    {"reciprocal", 0, true, false},  /* a divisor */
    {"sqrt", 0, true, false},        /* defined above 0 only */
    {"where", 1, false, true},       /* a mask */
};

static inline special special_of(const meg_op *op, int input)
{
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (strcmp(specials[i].op, op->name) == 0 && specials[i].input == input) return specials[i];
    return (special){op->name, input, false, false};
}

/* Inputs lie within half of this around 0, so that every branch is met, and no kink: hard_swish bends at
 * -3 and 3. */
static inline double spread_of(const meg_op *op)
{
    return strcmp(op->name, "hard_swish") == 0 ? 7 : 4;
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

static inline double *doubles(int64_t count)
{
    double *a = calloc((size_t)count + 1, sizeof *a);
    assert_non_null(a);
    return a;
}

static inline meg_box shape_of(const test_case *t, int input)
{
    return t->g->value[t->v->in[input]].shape;
}

static inline meg_stream stream_of(const test_case *t, const char *what)
{
    return (meg_stream){7, meg_hash(t->name), meg_hash(what)};
}

/* Reads "2x3x9x7" or "4x5@10"; returns what follows. */
static inline const char *read_shape(const char *text, int *rank, int64_t dims[], int64_t *classes)
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

static inline void fill_input(test_case *t, int i)
{
    const meg_value *value = &t->g->value[t->v->in[i]];
    int64_t count = meg_box_size(&value->shape);
    meg_stream s = stream_of(t, value->name);
    bool positive = special_of(t->op, i).positive || value->kind == MEG_STATE ||
                    value->kind == MEG_FIXED;
    t->in[i] = doubles(count);
    for (int64_t k = 0; k < count; k++) {
        double at = (double)meg_random_permuted(s, count, k) + 0.75 - 0.13 * i; /* sums are not 0 */
        double grid = at / (double)count - 0.5;
        double any = positive ? 0.5 + fabs(4 * grid) : spread_of(t->op) * grid;
        double label = floor(meg_random_uniform(s, (uint64_t)k) * (double)(t->classes[i] + 1)) - 1;
        t->in[i][k] = t->classes[i] ? (k ? label : 0) : (double)(float)any; /* -1: ignored */
    }
}

static inline test_case case_open(const meg_op *op, const meg_sample *sample)
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

static inline void case_close(test_case *t)
{
    for (int i = 0; i < MEG_INPUTS; i++)
        free(t->in[i]), free(t->grad[i]);
    free(t->y), free(t->dy), free(t->second);
    meg_graph_destroy(t->g);
}

/* Is there a gradient to be had of this input? */
static inline bool differentiable(const test_case *t, int i)
{
    const meg_value *x = &t->g->value[t->v->in[i]];
    return !t->op->no_gradient && x->dtype == MEG_F32 && x->kind != MEG_STATE &&
           x->kind != MEG_FIXED && !special_of(t->op, i).constant;
}

/* ---- operands of one work, in one precision ---- */

typedef struct bench {
    const test_case *t;
    meg_dtype real, type[MEG_OPERANDS];
    meg_call call;
} bench;

static inline double get(const bench *b, int operand, int64_t i)
{
    return number_get(b->type[operand], b->call.t[operand].data, i);
}

static inline void set(const bench *b, int operand, int64_t i, double value)
{
    number_set(b->type[operand], b->call.t[operand].data, i, value);
}

static inline size_t bytes_of(const bench *b, int operand)
{
    int64_t size = meg_box_size(&b->call.t[operand].box);
    return (size_t)(size * meg_dtype_bytes(b->type[operand]));
}

/* All bits on: NaN, and numbers that are no label or tap. */
static inline void poison(const bench *b, int operand)
{
    if (b->call.t[operand].data) memset(b->call.t[operand].data, 0xff, bytes_of(b, operand));
}

/* An empty box has no memory. */
static inline void make(bench *b, int operand, meg_box box, meg_dtype type)
{
    b->type[operand] = type == MEG_F32 ? b->real : type;
    b->call.t[operand].box = box;
    if (meg_box_empty(&box)) return;
    b->call.t[operand].data = malloc(bytes_of(b, operand));
    assert_non_null(b->call.t[operand].data);
    poison(b, operand);
}

static inline void put(const bench *b, int operand, meg_box part, const double *whole,
                       meg_box shape)
{
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p))
        set(b, operand, meg_box_at(&b->call.t[operand].box, p), whole[meg_box_at(&shape, p)]);
}

/* Adds (or, `max`, keeps the larger) what a piece has to the whole. */
static inline void collect(const bench *b, int operand, meg_box part, double *whole, meg_box shape)
{
    int64_t p[MEG_AXES];
    bool max = b->t->op->max && operand == MEG_Y;
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p)) {
        double value = get(b, operand, meg_box_at(&b->call.t[operand].box, p));
        double *to = &whole[meg_box_at(&shape, p)];
        *to = max ? fmax(*to, value) : *to + value;
    }
}

static inline int64_t draw(uint64_t *state, int64_t below)
{
    meg_stream s = {11, 0, 0};
    return (int64_t)(meg_random_uniform(s, (*state)++) * (double)below);
}

/* Storage for a part: the whole value; with `state`, the part or a larger box around it. Where
 * nothing is needed there may be storage still: another work's. */
static inline meg_box storage(meg_box part, meg_box shape, uint64_t *state)
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
static inline bench bench_open(const test_case *t, meg_dtype real, meg_work w, uint64_t *state)
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

static inline void bench_close(bench *b)
{
    for (int i = 0; i < MEG_OPERANDS; i++)
        free(b->call.t[i].data);
}

/* Runs a pass with what its masks name; false if there is no such pass. */
static inline bool run(const bench *b, meg_pass pass)
{
    if (!meg_op_has(b->t->op, pass)) return false;
    meg_call call = b->call;
    meg_mask reads = meg_op_reads(b->t->op, pass), writes = meg_op_writes(b->t->op, pass);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!((reads | writes) & MEG_BIT(i))) call.t[i] = (meg_array){0};
        if (writes & ~reads & MEG_BIT(i)) poison(b, i);
    }
    meg_op_kernel(b->t->op, pass, b->real)(&call);
    return true;
}

#endif
