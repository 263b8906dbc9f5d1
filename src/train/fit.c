/* Whether a data set, for training or for evaluation, fits a network. The messages say what would do. */
#include "train/context.h"

#include "graph/op.h"
#include "train/step/wants.h"

#include <inttypes.h>
#include <string.h>

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
    MEG_CHECK(&ctx->error, !meg_box_empty(&d->set.label), MEG_EARG,
              "%s has no labels to compare with: give it some, or predict", d->set.source);
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

/* ---- fields with names ---- */

/* Extents of 1 do not matter: a target a sample is (n) or (n, 1). */
static bool same_extents(const meg_column *f, const meg_value *x)
{
    int i = 1, k = 1;
    for (;;) {
        while (i < f->rank && f->dims[i] == 1)
            i++;
        while (k < x->rank && x->dims[k] == 1)
            k++;
        if (i >= f->rank || k >= x->rank) return i >= f->rank && k >= x->rank;
        if (f->dims[i++] != x->dims[k++]) return false;
    }
}

static const char *shape_text(int rank, const int64_t dims[], char out[128])
{
    strcpy(out, "(n");
    for (int i = 1; i < rank; i++)
        snprintf(out + strlen(out), 128 - strlen(out), ", %" PRId64, dims[i]);
    strcat(out, ")");
    return out;
}

/* All that the network is given from outside: "x, label". */
static const char *leaves_of(const meg_graph *g, char out[MEG_TEXT])
{
    *out = '\0';
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT || g->value[i].kind == MEG_LABEL)
            snprintf(out + strlen(out), MEG_TEXT - strlen(out), "%s%s", *out ? ", " : "",
                     g->value[i].name);
    return out;
}

static meg_status check_column(meg_context *ctx, const meg_graph *g, const meg_value *x,
                               const meg_dataset *d)
{
    char text[MEG_TEXT], has[128], takes[128];
    int at = meg_wants_field(d, x);
    MEG_CHECK(&ctx->error, at >= 0, MEG_EARG, "%s has nothing for '%s': %s takes %s", d->source,
              x->name, g->name, leaves_of(g, text));
    const meg_column *f = &d->column[at];
    MEG_CHECK(&ctx->error, same_extents(f, x), MEG_EARG,
              "%s: '%s' has the shape %s, but %s takes %s", d->source, f->name,
              shape_text(f->rank, f->dims, has), g->name, shape_text(x->rank, x->dims, takes));
    bool real = f->dtype == MEG_F32 || f->dtype == MEG_F64;
    MEG_CHECK(&ctx->error, x->dtype != MEG_I32 || !real, MEG_EARG,
              "%s: '%s' has real numbers (%s), but %s takes %s: use whole ones, like int64",
              d->source, f->name, meg_dtype_name(f->dtype), g->name,
              x->kind == MEG_LABEL ? "classes" : "ids");
    return MEG_OK;
}

meg_status meg_columns_fit(meg_context *ctx, const meg_graph *g, const meg_dataset *d,
                           const meg_reading *needed, bool labels)
{
    char text[MEG_TEXT];
    int number = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT && x->kind != MEG_LABEL) continue;
        bool reads = (labels || x->kind == MEG_INPUT) &&
                     (!needed || !meg_box_empty(&needed->want[number].box));
        number++;
        if (reads || meg_wants_field(d, x) >= 0) MEG_TRY(&ctx->error, check_column(ctx, g, x, d));
    }
    for (int i = 0; i < d->fields; i++) {
        int id = meg_graph_find_value(g, d->column[i].name);
        bool leaf = id >= 0 && (g->value[id].kind == MEG_INPUT || g->value[id].kind == MEG_LABEL);
        MEG_CHECK(&ctx->error, leaf, MEG_EARG,
                  "%s: '%s' is no input and no target of %s: it takes %s", d->source,
                  d->column[i].name, g->name, leaves_of(g, text));
    }
    return MEG_OK;
}

/* ---- a sample and its labels ---- */

static meg_status check_input(meg_context *ctx, const meg_graph *g, const meg_value *x,
                              const meg_data *d)
{
    bool tokens = x->dtype == MEG_I32;
    MEG_TRY(&ctx->error, check_shape(ctx, x, &d->set.sample, d));
    MEG_CHECK(&ctx->error, tokens == d->set.tokens, MEG_EARG,
              "%s: its samples are %s, but '%s' of %s takes %s", d->set.source,
              d->set.tokens ? "tokens" : "images", x->name, g->name, tokens ? "tokens" : "images");
    return MEG_OK;
}

static meg_status check(const meg_data *d, const meg_graph *g, bool labels)
{
    meg_context *ctx = d->ctx;
    char text[MEG_TEXT];
    int inputs = 0;
    for (int i = 0; i < g->values; i++)
        inputs += g->value[i].kind == MEG_INPUT;
    MEG_CHECK(&ctx->error, inputs, MEG_EARG, "%s has no input", g->name);
    if (d->set.fields) return meg_columns_fit(ctx, g, &d->set, NULL, labels);
    MEG_CHECK(&ctx->error, inputs == 1, MEG_EARG,
              "%s has one array of samples, but %s takes %s: give them by name (meg_data_memory)",
              d->set.source, g->name, leaves_of(g, text));
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT)
            MEG_TRY(&ctx->error, check_input(ctx, g, &g->value[i], d));
    return labels ? check_labels(ctx, g, d) : MEG_OK;
}

meg_status meg_data_fits(const meg_data *d, const meg_graph *g)
{
    return check(d, g, !meg_graph_late(g)); /* a loss outside compares with what it likes */
}

meg_status meg_data_feeds(const meg_data *d, const meg_graph *g)
{
    return check(d, g, false);
}
