/* Dropout: zeroes elements at random and scales the rest, so that the mean stays. Evaluation passes
 * everything. No mask is stored: backward draws it again. Elements may be drawn for together:
 *
 *     per=element   each for itself
 *     per=channel   a channel of a sample (dropout of feature maps)
 *     per=sample    a sample: of a residual branch, its depth is random (Huang et al., Deep networks
 *                   with stochastic depth, ECCV 2016)
 *     per=batch     all or nothing
 *
 * Draw i, row-major over (n, c, d, h, w), (n, c), (n) or nothing, with n counted over the whole batch
 * of the step, asks word i % 4 of the random block i / 4 of (seed, step, node name): the same on
 * every plan. */
#include "ops/attrs.h"
#include "ops/common/runs.h"
#include "ops/common/shape.h"

#ifndef MEG_F64
static const meg_param params[] = {
    {"rate", MEG_PARAM_REAL, offsetof(meg_dropout_attr, rate), "0.5", "share of zeros", NULL, 0, 1},
    {"per", MEG_PARAM_CHOICE, offsetof(meg_dropout_attr, per), "element",
     "what is drawn for at once", "element|channel|sample|batch", 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g;
    bool each = ((const meg_dropout_attr *)v->attr)->per == MEG_DROP_ELEMENT;
    double size = (double)meg_box_size(&w->out);
    return p == MEG_EVAL ? 0 : (each ? 25 : 1) * size; /* a quarter of ten Philox rounds */
}
#endif

typedef struct rule {
    meg_stream stream;
    double zeros; /* words below this drop their element */
    real scale;   /* of the others */
} rule;

static rule rule_of(const meg_call *c)
{
    const meg_dropout_attr *attr = c->node->attr;
    meg_stream s = {c->moment.seed, c->moment.step, meg_hash(c->node->name)};
    double kept = 1 - attr->rate;
    return (rule){s, attr->rate * 0x1p32, (real)(kept > 0 ? 1 / kept : 0)};
}

/* One run, whose first element has number `index`. */
static void drop_row(real *to, const real *from, const rule *r, uint64_t index, int64_t count)
{
    uint32_t word[4];
    for (int64_t i = 0; i < count; i++, index++) {
        if (i == 0 || index % 4 == 0) meg_random_bits(r->stream, index / 4, word);
        to[i] = word[index % 4] < r->zeros ? 0 : from[i] * r->scale;
    }
}

/* The draw of the elements around p, which they share. */
static uint64_t draw_of(const meg_call *c, const int64_t p[MEG_AXES])
{
    int per = ((const meg_dropout_attr *)c->node->attr)->per;
    int64_t sample = c->moment.sample + p[MEG_N];
    int64_t channels = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    if (per == MEG_DROP_BATCH) return 0;
    return (uint64_t)(per == MEG_DROP_SAMPLE ? sample : sample * channels + p[MEG_C]);
}

static void drop_together(const meg_call *c, const meg_array *from, const meg_array *to)
{
    int64_t p[MEG_AXES], count = meg_extent(&c->work.out, MEG_W);
    uint32_t word[4];
    rule r = rule_of(c);
    meg_box lines = c->work.out;
    lines.hi[MEG_W] = lines.lo[MEG_W] + 1;
    meg_clear_beyond(to, &c->work.out);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        uint64_t draw = draw_of(c, p);
        meg_random_bits(r.stream, draw / 4, word);
        bool zero = word[draw % 4] < r.zeros;
        const real *a = meg_real_at(from, p);
        real *y = meg_real_at(to, p);
        for (int64_t i = 0; i < count; i++)
            y[i] = zero ? 0 : a[i] * r.scale;
    }
}

/* Forward from x to y, and backward from dy to dx. */
static void drop(const meg_call *c, const meg_array *from, const meg_array *to)
{
    if (((const meg_dropout_attr *)c->node->attr)->per != MEG_DROP_ELEMENT) {
        drop_together(c, from, to);
        return;
    }
    int64_t p[MEG_AXES];
    meg_box shape = c->graph->value[c->node->in[0]].shape;
    int64_t before = c->moment.sample * (meg_box_size(&shape) / meg_extent(&shape, MEG_N));
    rule r = rule_of(c);
    meg_clear_beyond(to, &c->work.out);
    const meg_array whole = {shape, NULL}; /* within a run, the numbers are consecutive too */
    meg_runs runs = meg_runs_of(c->work.out, 3, (const meg_array *[]){from, to, &whole});
    for (bool on = meg_box_first(&runs.starts, p); on; on = meg_box_next(&runs.starts, p))
        drop_row(meg_real_at(to, p), meg_real_at(from, p), &r,
                 (uint64_t)(before + meg_box_at(&shape, p)), runs.length);
}

static void forward(const meg_call *c)
{
    drop(c, &c->t[MEG_X], &c->t[MEG_Y]);
}

static void backward(const meg_call *c)
{
    drop(c, &c->t[MEG_DY], &c->t[MEG_DX]);
}

static void evaluate(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        memmove(meg_real_at(y, p), meg_real_at(x, p), (size_t)r.length * sizeof(real));
}

MEG_KERNELS(dropout) = {
    .run = {[MEG_FORWARD] = forward, [MEG_EVAL] = evaluate, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", "rate=0.3"},
                                     {"2x5x11", NULL},
                                     {"3x16x5x7", "rate=0.1"},
                                     {"2x3x4x3x5", "rate=0.9"},
                                     {"4x9", "rate=0"},
                                     {"4x9", "rate=1"},
                                     {"5x4x3x7", "rate=0.4 per=channel"},
                                     {"7x3x5", "rate=0.5 per=sample"},
                                     {"2x3x2x3x4", "rate=0.2 per=batch"},
                                     {NULL, NULL}};

const meg_op meg_op_dropout = {
    .name = "dropout",
    .onnx = "Dropout",
    .doc = "zeroes elements at random in training",
    .paper = "Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, Dropout: a simple way to "
             "prevent neural networks from overfitting, JMLR 15, 2014",
    .params = params,
    .attr_bytes = sizeof(meg_dropout_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X),
              [MEG_EVAL] = MEG_BIT(MEG_X),
              [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_EVAL] = MEG_BIT(MEG_Y),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(dropout),
    .overwrites = true,
    .samples = samples,
};
#endif
