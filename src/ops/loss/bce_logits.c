/* Binary cross-entropy of logits, each with a target t of 0 to 1: one element,
 *
 *     sum of ((1 - t) x + (1 + (w - 1) t) log(1 + exp(-x))) / count
 *
 * where w, one per channel, 1 if not given, is what a positive weighs. `count` is the number of
 * targets of the whole step (label_count). A target of NaN is none: no loss, no gradient.
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    TARGETS = MEG_X + 1,
    COUNT,
    WEIGHTS /* of the positives; may be absent */
};

#ifndef MEG_F64
static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 28 : 48) * (double)meg_box_size(&w->sum); /* exp(), log(): 20 */
}
#endif

static double loss(double x, double t, double weight)
{
    double soft = log1p(exp(-fabs(x))) + (x < 0 ? -x : 0); /* log(1 + exp(-x)) */
    return (1 - t) * x + (1 + (weight - 1) * t) * soft;
}

static double slope(double x, double t, double weight)
{
    return 1 - t - (1 + (weight - 1) * t) / (1 + exp(x));
}

/* The channels are walked one by one, since each has its weight. */
static meg_box channel_of(const meg_call *c, int64_t ch)
{
    meg_box part = c->work.sum;
    part.lo[MEG_C] = ch;
    part.hi[MEG_C] = ch + 1;
    return part;
}

static double channel_loss(const meg_call *c, int64_t ch)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *targets = &c->t[TARGETS];
    double total = 0, weight = meg_class_weight(&c->t[WEIGHTS], ch);
    meg_runs r = meg_runs_of(channel_of(c, ch), 2, (const meg_array *[]){x, targets});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p), *target = meg_real_at(targets, p);
        for (int64_t i = 0; i < r.length; i++)
            if (!isnan(target[i])) total += loss((double)from[i], (double)target[i], weight);
    }
    return total;
}

static void forward(const meg_call *c)
{
    double total = 0;
    for (int64_t ch = c->work.sum.lo[MEG_C]; ch < c->work.sum.hi[MEG_C]; ch++)
        total += channel_loss(c, ch);
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

static void pull_channel(const meg_call *c, int64_t ch, double pull)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *targets = &c->t[TARGETS], *dx = &c->t[MEG_DX];
    double weight = meg_class_weight(&c->t[WEIGHTS], ch);
    meg_runs r = meg_runs_of(channel_of(c, ch), 3, (const meg_array *[]){x, targets, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p), *target = meg_real_at(targets, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++) {
            double each = slope((double)from[i], (double)target[i], weight);
            to[i] = isnan(target[i]) ? 0 : (real)(pull * each);
        }
    }
}

static void backward(const meg_call *c)
{
    double pull = meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]);
    meg_clear_beyond(&c->t[MEG_DX], &c->work.sum);
    for (int64_t ch = c->work.sum.lo[MEG_C]; ch < c->work.sum.hi[MEG_C]; ch++)
        pull_channel(c, ch, pull);
}

MEG_KERNELS(bce_logits) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(TARGETS) | MEG_BIT(COUNT) | MEG_BIT(WEIGHTS)
};

static const meg_sample samples[] = {{"5x7 5x7 1", NULL},
                                     {"3x5x9 3x5x9 1 1x5", NULL},
                                     {"2x16x5x4 2x16x5x4 1", NULL},
                                     {"2x1x5x4 2x1x5x4 1 1", NULL},
                                     {"2x3x4x3x5 2x3x4x3x5 1 1x3", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_bce_logits = {
    .name = "bce_logits",
    .by_sigmoid = true,
    .doc = "binary cross-entropy of logits, targets, their count[, weights of positives]",
    .data_inputs = 3,
    .data_inputs_max = 4,
    .real_target = true,
    .infer = meg_target_infer,
    .sum = meg_target_sum,
    .need = meg_target_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(bce_logits),
    .samples = samples,
};
#endif
