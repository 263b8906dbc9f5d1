/* Predictions: what the network makes of samples, in evaluation mode. Labels are not read: those of the step
 * are such as do not count.
 */
#include "train/caller/caller.h"
#include "train/content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct prediction {
    meg_trainer *trainer;
    meg_data *data;
    meg_output output;
    meg_tensor *to;
    meg_loader *loader; /* NULL: the rank reads no samples */
    meg_reading wants;  /* inputs only */
    meg_filled filled;
    int labels; /* of `fed`, after the inputs */
    meg_fed *fed;
} prediction;

/* ---- labels that do not count ---- */

static void *blank(const meg_value *x, int64_t batch)
{
    int64_t count = meg_box_size(&x->shape) / meg_extent(&x->shape, MEG_N) * batch;
    float *out = malloc((size_t)count * sizeof *out + 1);
    if (!out) abort();
    for (int64_t i = 0; i < count; i++)
        if (x->dtype == MEG_I32) ((int32_t *)(void *)out)[i] = -1;
        else out[i] = NAN;
    return out;
}

static void add_labels(prediction *p, int64_t batch)
{
    const meg_graph *g = p->trainer->plan->source;
    p->fed = calloc((size_t)g->values + 1, sizeof *p->fed);
    if (!p->fed) abort();
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_LABEL) continue;
        p->fed[p->wants.count + p->labels++] = (meg_fed){.name = x->name,
                                                         .data = blank(x, batch),
                                                         .dtype = x->dtype == MEG_I32 ? MEG_I32
                                                                                      : MEG_F32};
    }
}

static void clear(prediction *p)
{
    for (int i = 0; p->fed && i < p->labels; i++)
        free((void *)(uintptr_t)p->fed[p->wants.count + i].data);
    free(p->fed);
    meg_filled_free(&p->filled);
    meg_loader_free(p->loader);
}

/* ---- making ready ---- */

static void want_inputs(prediction *p)
{
    const meg_plan *plan = p->trainer->plan;
    meg_reading all = meg_wants_of(plan, MEG_ENTRY_EVAL, MEG_ENTRY_EVAL);
    meg_wants_bind(&all, plan, &p->data->set);
    p->wants.want = all.want;
    for (int i = 0; i < all.count; i++) {
        if (all.want[i].label) continue;
        p->wants.want[p->wants.count++] = all.want[i];
        p->wants.any = p->wants.any || !meg_box_empty(&all.want[i].box);
    }
}

/* What a rank can do wrong on its own. */
static meg_status make_ready(prediction *p)
{
    meg_trainer *t = p->trainer;
    meg_error *e = &t->ctx->error;
    int64_t batch = t->plan->entry[MEG_ENTRY_EVAL].batch;
    MEG_CHECK(e, t->plan->options.predict || meg_graph_late(t->plan->source), MEG_EARG,
              "%s was planned without memory for its outputs: make the plan with predict=1",
              t->plan->source->name);
    MEG_TRY(e, meg_data_feeds(p->data, t->plan->source));
    MEG_TRY(e, meg_output_find(t, p->to->name, &p->output));
    MEG_CHECK(e, p->to->data || meg_rank(t->ctx) > 0, MEG_EARG,
              "%s: rank 0 has no memory for its numbers", p->output.value->name);
    meg_tensor like = meg_output_tensor(t, &p->output, p->data->set.count);
    if (p->to->data) MEG_TRY(e, meg_caller_check(e, p->to, &like, t->plan->source->name));
    want_inputs(p);
    add_labels(p, batch);
    meg_loader_options o = {.batch = batch, .wants = p->wants.count, .want = p->wants.want};
    return p->wants.any ? meg_loader_new(e, &p->data->set, &o, &p->loader) : MEG_OK;
}

/* ---- steps ---- */

static meg_status run_batch(prediction *p, int64_t index, int64_t count)
{
    meg_trainer *t = p->trainer;
    meg_error *e = &t->ctx->error;
    int64_t batch = t->plan->entry[MEG_ENTRY_EVAL].batch;
    meg_feed feed = {.scalars = {0, 0, 0, 1}, .seed = (uint64_t)t->ctx->options.seed};
    meg_batch b = {.count = count};
    meg_outcome o;
    if (p->loader) MEG_TRY(e, meg_loader_next(p->loader, e, 0, index, &b));
    MEG_TRY(e, meg_filled_take(&p->filled, e, &b, batch, &feed));
    for (int i = 0; i < feed.count; i++)
        p->fed[i] = feed.fed[i];
    for (int i = feed.count; i < p->wants.count; i++)
        p->fed[i] = (meg_fed){.name = p->wants.want[i].name, .dtype = p->wants.want[i].dtype};
    feed.fed = p->fed;
    feed.count = p->wants.count + p->labels;
    meg_status status = meg_engine_step(t->engine, e, MEG_ENTRY_EVAL, &feed, &o);
    return status == MEG_ENAN ? MEG_OK : status; /* of a loss that nobody asked for */
}

static meg_status run(prediction *p)
{
    meg_trainer *t = p->trainer;
    int64_t batch = t->plan->entry[MEG_ENTRY_EVAL].batch, all = p->data->set.count;
    for (int64_t i = 0; i * batch < all; i++) {
        int64_t count = all - i * batch < batch ? all - i * batch : batch;
        if (t->counter) t->counter(t->counter_context, i * batch, all);
        MEG_TRY(&t->ctx->error, meg_context_end(t->ctx, run_batch(p, i, count)));
        MEG_TRY(&t->ctx->error, meg_output_gather(t, MEG_ENTRY_EVAL, &p->output, p->to,
                                                  (meg_sample_range){i * batch, count}));
    }
    meg_tensor like = meg_output_tensor(t, &p->output, all);
    int64_t size = meg_dtype_bytes(p->to->dtype);
    for (int i = 0; i < like.rank; i++)
        size *= like.shape[i];
    return meg_caller_share(t->ctx, p->to->data, size);
}

meg_status meg_predict(meg_trainer *t, meg_data *d, meg_tensor *output)
{
    prediction p = {.trainer = t, .data = d, .to = output};
    meg_token same[] = {{"another number of samples to predict", (uint64_t)d->set.count},
                        {"another type of numbers to predict", (uint64_t)output->dtype},
                        {"another output to predict", meg_hash(output->name ? output->name : "")}};
    MEG_TRY(&t->ctx->error, meg_context_same(t->ctx, same, 3));
    meg_status status = meg_context_agree(t->ctx, make_ready(&p));
    if (status == MEG_OK)
        status = meg_data_same(d, p.loader || t->plan->options.feed == MEG_FEED_EACH);
    if (status == MEG_OK) status = run(&p);
    clear(&p);
    return status;
}
