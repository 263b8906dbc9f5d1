/* Choice by a mask: y = x, but the other value where the mask holds (is above 0), or, inverted, where
 * it does not. The other value is one number (masked_fill), or an input. Mask and other may be spread
 * over x (pair.h). A mask carries no gradient; what was not chosen gets 0, whatever its gradient is.
 */
#include "ops/attrs.h"
#include "ops/pointwise/pair.h"

enum {
    MASK = 1,
    OTHER
};

#ifndef MEG_F64
static const meg_param params[] = {{"value", MEG_PARAM_REAL, offsetof(meg_where_attr, value), "0",
                                    "what is put there, if there is no third input", "inf", 0, 0},
                                   {"invert", MEG_PARAM_BOOL, offsetof(meg_where_attr, invert), "0",
                                    "it is put where the mask does not hold", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    for (int i = 1; i < v->inputs; i++)
        MEG_TRY(e, meg_pair_fits(g, v, e, i));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}
#endif

typedef struct row { /* along w: where an input is read, and how far its next number lies */
    const real *at;
    int64_t step;
} row;

static row row_of(const meg_call *c, int i, const int64_t p[MEG_AXES])
{
    if (i >= c->node->inputs) return (row){NULL, 0};
    return (row){meg_pair_input(c, i, p), meg_pair_spread(c, i, MEG_W) ? 0 : 1};
}

static bool replaces(const meg_call *c, const row *mask, int64_t k)
{
    return (mask->at[k * mask->step] > 0) != ((const meg_where_attr *)c->node->attr)->invert;
}

static meg_box rows_of(const meg_call *c)
{
    meg_box rows = c->work.out;
    if (!meg_box_empty(&rows)) rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    return rows;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], length = meg_extent(&c->work.out, MEG_W);
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    real value = (real)((const meg_where_attr *)c->node->attr)->value;
    meg_box rows = rows_of(c);
    meg_clear_beyond(y, &c->work.out);
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        row mask = row_of(c, MASK, p), other = row_of(c, OTHER, p);
        const real *from = meg_real_at(x, p);
        real *to = meg_real_at(y, p);
        for (int64_t k = 0; k < length; k++)
            if (!replaces(c, &mask, k)) to[k] = from[k];
            else to[k] = other.at ? other.at[k * other.step] : value;
    }
}

static void pull_other(const meg_call *c)
{
    int64_t p[MEG_AXES], q[MEG_AXES];
    const meg_array *dy = &c->t[MEG_DY], *to = &c->t[MEG_DX + OTHER];
    meg_box part = meg_pair_need(c->graph, c->node, OTHER, &c->work), lines = meg_lines(&part);
    bool spread = meg_pair_spread(c, OTHER, MEG_W);
    meg_clear_beyond(to, &part);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&part, p), rows = meg_pair_rows(c, OTHER, &line);
        double sum[MEG_LINE] = {0};
        int64_t length = spread ? meg_extent(&c->work.out, MEG_W) : meg_extent(&line, MEG_W);
        for (bool go = meg_box_first(&rows, q); go; go = meg_box_next(&rows, q)) {
            const real *from = meg_real_at(dy, q);
            row mask = row_of(c, MASK, q);
            for (int64_t k = 0; k < length; k++)
                if (replaces(c, &mask, k)) sum[spread ? 0 : k] += (double)from[k];
        }
        meg_store_line(to, &line, sum);
    }
}

static void pull_x(const meg_call *c)
{
    int64_t p[MEG_AXES], length = meg_extent(&c->work.out, MEG_W);
    const meg_array *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_box rows = rows_of(c);
    meg_clear_beyond(dx, &c->work.out);
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        row mask = row_of(c, MASK, p);
        const real *from = meg_real_at(dy, p);
        real *to = meg_real_at(dx, p);
        for (int64_t k = 0; k < length; k++)
            to[k] = replaces(c, &mask, k) ? 0 : from[k];
    }
}

static void backward(const meg_call *c)
{
    if (c->t[MEG_DX + OTHER].data) pull_other(c); /* first: dx may lie on dy */
    if (c->t[MEG_DX].data) pull_x(c);
}

MEG_KERNELS(where) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x7", "value=0.5"},
                                     {"5x7 1x7 5x1", NULL},
                                     {"2x5x11 1x1x11", "value=-1.5 invert=1"},
                                     {"2x5x141 1x1x141 1", NULL},
                                     {"3x16x5x7 3x16x5x7 3x16x5x7", NULL},
                                     {"3x16x5x7 3x16x5x7", "value=2 invert=1"},
                                     {"3x6x5x7 1x1x5x7 3x6", "invert=1"},
                                     {"2x3x4x3x5 2x1x4x3x5 1x3x1x1x5", NULL},
                                     {"2x3x4x3x5 2x3", "value=0.25"},
                                     {NULL, NULL}};

const meg_op meg_op_where = {
    .name = "where",
    .onnx = "Where",
    .doc = "x, or another value where a mask holds (is above 0)",
    .params = params,
    .attr_bytes = sizeof(meg_where_attr),
    .data_inputs = 2,
    .data_inputs_max = 3,
    .infer = infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + MASK) | MEG_BIT(MEG_X + OTHER),
              [MEG_BACKWARD] = MEG_BIT(MEG_X + MASK) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + OTHER)},
    .cheap = true,
    .overwrites = true,
    MEG_KERNELS_OF(where),
    .samples = samples,
};
#endif
