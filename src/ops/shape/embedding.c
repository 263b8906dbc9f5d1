/* Embedding: a row of the weight for each id of a token, as channels.
 *
 *     y(n, c, t) = weight(id(n, t), c)        ids: i32 (n, t), tokens on w; weight: (vocabulary, c)
 *
 * It is a product with one-hot vectors, so its sum box is the vocabulary: whoever has a part of the
 * rows adds zeros for the ids of others. The weight has the shape of a 1x1 convolution from the
 * features back to the vocabulary, so the same value may serve as output projection (Press, Wolf,
 * Using the output embedding to improve language models, EACL 2017).
 *
 * An id below 0 is no token: zeros, and no gradient. One too large has no row: NaN, which the loss
 * will show.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/window.h"

#include <math.h>

typedef struct embedding_attr {
    int64_t vocabulary, features;
    double deviation;
} embedding_attr;

static int64_t id_at(const meg_call *c, const int64_t p[MEG_AXES])
{
    const meg_array *t = &c->t[MEG_X];
    int64_t q[MEG_AXES] = {p[MEG_N], 0, p[MEG_D], p[MEG_H], p[MEG_W]};
    return ((const int32_t *)t->data)[meg_box_at(&t->box, q)];
}

static bool ours(const meg_call *c, int64_t id)
{
    return id >= c->work.sum.lo[MEG_N] && id < c->work.sum.hi[MEG_N];
}

/* The tokens of the work: each stands for its features, which lie `stride` apart. */
static meg_box tokens_of(const meg_box *out)
{
    meg_box tokens = *out;
    if (!meg_box_empty(out)) tokens.hi[MEG_C] = tokens.lo[MEG_C] + 1;
    return tokens;
}

static void forward(const meg_call *c)
{
    const meg_array *y = &c->t[MEG_Y], *w = &c->t[MEG_X + 1];
    meg_box tokens = tokens_of(&c->work.out);
    int64_t p[MEG_AXES], known = ((const embedding_attr *)c->node->attr)->vocabulary;
    int64_t features = meg_extent(&c->work.out, MEG_C), stride = meg_stride(y, MEG_C);
    if (meg_box_empty(&c->work.sum)) {
        meg_fill_part(y, c->work.out, 0);
        return;
    }
    for (bool on = meg_box_first(&tokens, p); on; on = meg_box_next(&tokens, p)) {
        int64_t id = id_at(c, p);
        real *to = meg_real_at(y, p), none = id < known ? 0 : (real)NAN;
        const real *row = ours(c, id) ? meg_channel_at(w, id, p[MEG_C]) : NULL;
        for (int64_t f = 0; f < features; f++)
            to[f * stride] = row ? row[f] : none;
    }
}

static void weight(const meg_call *c)
{
    const meg_array *dw = &c->t[MEG_DX + 1], *dy = &c->t[MEG_DY];
    meg_box tokens = tokens_of(&c->work.out);
    int64_t p[MEG_AXES];
    int64_t features = meg_extent(&c->work.out, MEG_C), stride = meg_stride(dy, MEG_C);
    if (!dw->data) return;
    meg_zero(dw);
    if (meg_box_empty(&c->work.sum)) return;
    for (bool on = meg_box_first(&tokens, p); on; on = meg_box_next(&tokens, p)) {
        int64_t id = id_at(c, p);
        if (!ours(c, id)) continue;
        real *row = meg_channel_at(dw, id, p[MEG_C]);
        const real *from = meg_real_at(dy, p);
        for (int64_t f = 0; f < features; f++)
            row[f] += from[f * stride];
    }
}

MEG_KERNELS(embedding) = {.run = {[MEG_FORWARD] = forward, [MEG_WEIGHT] = weight}};

#ifndef MEG_F64

#define AT(field) offsetof(embedding_attr, field)

static const meg_param params[] = {
    {"vocabulary", MEG_PARAM_INT, AT(vocabulary), NULL, "rows of the weight", NULL, 1, 1 << 24},
    {"features", MEG_PARAM_INT, AT(features), NULL, "channels of the output", NULL, 1, 1 << 24},
    {"deviation", MEG_PARAM_REAL, AT(deviation), "1", "of the weight's first, normal numbers", NULL,
     0, 1e6},
    {0}};

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    const embedding_attr *a = v->attr;
    (void)g;
    return meg_box_of(a->vocabulary, 1, 1, 1, 1);
}

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const embedding_attr *a = v->attr;
    (void)g;
    out[0] = (meg_weight_spec){.suffix = "weight",
                               .kind = MEG_PARAMETER,
                               .shape = meg_box_of(a->vocabulary, a->features, 1, 1, 1),
                               .rank = 2,
                               .dims = {a->vocabulary, a->features},
                               .start = MEG_NORMAL,
                               .bound = a->deviation};
    return 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const embedding_attr *a = v->attr;
    const meg_value *ids = &g->value[v->in[0]];
    int64_t dims[MEG_AXES] = {ids->dims[0], a->features};
    MEG_CHECK(e, ids->dtype == MEG_I32, MEG_EARG,
              "%s: ids '%s' are %s, but must be i32, the numbers of tokens", v->name, ids->name,
              meg_dtype_name(ids->dtype));
    MEG_CHECK(e, ids->rank < MEG_AXES && ids->shape.hi[MEG_C] == 1, MEG_EARG,
              "%s: ids '%s' of rank %d must be (n, tokens), without channels", v->name, ids->name,
              ids->rank);
    MEG_TRY(e, meg_want_weights(g, v, e));
    for (int i = 1; i < ids->rank; i++)
        dims[i + 1] = ids->dims[i];
    meg_shape_dims(out, ids->rank + 1, dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = input == 0 ? w->out : w->sum;
    (void)g, (void)v;
    in.lo[MEG_C] = input == 0 ? 0 : w->out.lo[MEG_C];
    in.hi[MEG_C] = input == 0 ? 1 : w->out.hi[MEG_C];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return p == MEG_WEIGHT ? (double)meg_box_size(&w->out) : 0;
}

static const meg_sample samples[] = {{"2x7@10", "vocabulary=10 features=5"},
                                     {"5@4", "vocabulary=4 features=3"},
                                     {"1x33@5", "vocabulary=5 features=16"},
                                     {"3x4@50", "vocabulary=50 features=17"},
                                     {"2x3x5@9", "vocabulary=9 features=4"},
                                     {"1x2x3x4@6", "vocabulary=6 features=2"},
                                     {0}};

const meg_op meg_op_embedding = {
    .name = "embedding",
    .looks_up = true,
    .doc = "a learned row of features for each id (i32) of a token",
    .paper = "Bengio, Ducharme, Vincent, Jauvin, A neural probabilistic language model, JMLR 3, "
             "2003",
    .params = params,
    .attr_bytes = sizeof(embedding_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_WEIGHT] = MEG_BIT(MEG_X) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_WEIGHT] = MEG_BIT(MEG_DX + 1)},
    .cheap = true,
    MEG_KERNELS_OF(embedding),
    .samples = samples,
};

#endif
