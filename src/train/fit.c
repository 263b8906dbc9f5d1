/* Whether a data set, for training or for evaluation, fits a network. The messages say what would do. */
#include "train/context.h"

#include "graph/op.h"

#include <inttypes.h>

/* One sample of a value, or its labels, must have the shape that the data set has. */
static meg_status check_shape(meg_context *ctx, const meg_value *x, const meg_box *box,
                              const meg_data *d)
{
    const char *doubt = x->kind == MEG_LABEL ? "" : d->set.findings.shape;
    const char *what = x->kind == MEG_LABEL ? "labels" : "samples";
    meg_box one = x->shape;
    one.hi[MEG_N] = 1;
    const int64_t *a = one.hi, *b = box->hi;
    const char *advice = x->kind != MEG_LABEL                ? ""
                         : a[2] * a[3] * a[4] == 1           ? ": use one label a sample"
                         : b[1] * b[2] * b[3] * b[4] == b[1] ? ": use a label for each pixel"
                                                             : "";
    MEG_CHECK(&ctx->error, meg_box_equal(&one, box), MEG_EARG,
              "%s: %s of %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64
              " (c d h w), but '%s' takes %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 "%s%s%s",
              d->set.source, what, b[1], b[2], b[3], b[4], x->name, a[1], a[2], a[3], a[4], advice,
              *doubt ? "; " : "", doubt);
    return MEG_OK;
}

/* Labels must be classes that the loss knows, or targets, as it wants them. */
static meg_status check_labels(meg_context *ctx, const meg_graph *g, const meg_data *d)
{
    static const char *const kind[] = {"class labels", "real targets"};
    for (int i = 0; i < g->losses; i++) {
        const meg_node *loss = &g->node[g->value[g->loss[i].value].maker];
        int64_t classes = g->value[loss->in[0]].shape.hi[MEG_C];
        bool real = loss->op->real_target;
        MEG_CHECK(&ctx->error, real == d->set.real, MEG_EARG,
                  "%s compares with %s, but %s has %s: use %s", loss->op->name, kind[real],
                  d->set.source, kind[!real],
                  real ? "labels saved as floats, or a network for classes (softmax_xent)"
                       : "labels saved as whole numbers, or a network for real targets (mse)");
        MEG_TRY(&ctx->error, check_shape(ctx, &g->value[loss->in[1]], &d->set.label, d));
        MEG_CHECK(&ctx->error, real || d->set.classes <= classes, MEG_EARG,
                  "%s: it has %d classes, but %s tells only %" PRId64 " apart: use classes=%d%s%s",
                  d->set.source, d->set.classes, g->name, classes, d->set.classes,
                  *d->set.findings.classes ? "; " : "", d->set.findings.classes);
    }
    return MEG_OK;
}

meg_status meg_data_fits(const meg_data *d, const meg_graph *g)
{
    meg_context *ctx = d->ctx;
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT) continue;
        bool tokens = x->dtype == MEG_I32;
        MEG_TRY(&ctx->error, check_shape(ctx, x, &d->set.sample, d));
        MEG_CHECK(&ctx->error, tokens == d->set.tokens, MEG_EARG,
                  "%s: its samples are %s, but '%s' of %s takes %s", d->set.source,
                  d->set.tokens ? "tokens" : "images", x->name, g->name,
                  tokens ? "tokens" : "images");
        return check_labels(ctx, g, d);
    }
    return meg_fail(&ctx->error, MEG_EARG, "%s has no input", g->name);
}
