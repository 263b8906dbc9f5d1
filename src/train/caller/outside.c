/* A loss outside: the caller gets the outputs of a training step, computes with them what it likes, and gives the
 * gradients by them back. The step waits in between, in the engine (exec/engine.h).
 *
 *     meg_forward    inputs -> every rank's own part;  outputs -> rank 0, and who wants them
 *     meg_backward   gradients of rank 0 -> all ranks; gradients of weights, update
 *     meg_input_gradient   every rank's share of the gradient by an input -> rank 0, and who wants it
 */
#include "train/caller/caller.h"

#include <inttypes.h>
#include <string.h>

struct meg_outside { /* the step that waits; of the trainer's pool */
    meg_feed feed;
    meg_fed *fed; /* inputs, then the losses' targets */
    int inputs;
    int32_t **ids;            /* of inputs: whole numbers of 64 bits, as 32; NULL: none yet */
    void *target[MEG_LOSSES]; /* (batch of the plan, c, d, h, w), as the engine takes them */
    int entry;
    int64_t batch;
    bool done; /* it has gone back */
};

/* ---- inputs ---- */

static const meg_tensor *find_tensor(const char *name, int count, const meg_tensor list[])
{
    for (int i = 0; i < count; i++)
        if (list[i].name && strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

static meg_status check_input(meg_error *e, const meg_value *x, const meg_tensor *t, int64_t batch)
{
    bool same = t->rank == x->rank && t->shape[0] == batch, whole = x->dtype == MEG_I32;
    for (int i = 1; same && i < x->rank; i++)
        same = t->shape[i] == x->dims[i];
    MEG_CHECK(e, same, MEG_EARG,
              "'%s' has another shape than the network's input, or another number of samples than "
              "the others (%" PRId64 ")",
              x->name, batch);
    bool fits = whole ? t->dtype == MEG_I32 || t->dtype == MEG_I64
                      : t->dtype == MEG_F32 || t->dtype == MEG_F64;
    MEG_CHECK(e, fits, MEG_EARG, "'%s' takes %s numbers: use %s", x->name, whole ? "whole" : "real",
              whole ? "MEG_I32 or MEG_I64" : "MEG_F32 or MEG_F64");
    return MEG_OK;
}

/* What has no 32 bits is no id. */
static const void *narrowed(const meg_trainer *t, const int64_t *from, int64_t each)
{
    meg_outside *o = t->outside;
    int32_t **to = &o->ids[o->inputs];
    if (!*to) *to = meg_pool_alloc(t->pool, (size_t)(each * t->plan->options.batch) * sizeof **to);
    for (int64_t i = 0; i < each * o->batch; i++)
        (*to)[i] = from[i] == (int32_t)from[i] ? (int32_t)from[i] : -1;
    return *to;
}

static meg_status take_input(meg_trainer *t, const meg_value *x, const meg_tensor *from)
{
    meg_outside *o = t->outside;
    meg_error *e = &t->ctx->error;
    MEG_CHECK(e, from, MEG_EARG, "%s takes an input '%s', which was not given",
              t->plan->source->name, x->name);
    MEG_TRY(e, check_input(e, x, from, o->batch));
    meg_fed f = {.name = x->name, .data = from->data, .dtype = from->dtype};
    int64_t each = meg_box_size(&x->shape) / meg_extent(&x->shape, MEG_N);
    if (from->dtype == MEG_I64) f.dtype = MEG_I32;
    if (from->dtype == MEG_I64 && from->data) f.data = narrowed(t, from->data, each);
    o->fed[o->inputs++] = f;
    return MEG_OK;
}

/* ---- targets ---- */

static const meg_value *target_of(const meg_graph *g, int loss)
{
    return &g->value[g->node[g->value[g->loss[loss].value].maker].in[1]];
}

static int64_t target_size(const meg_trainer *t, int loss)
{
    const meg_box *all = &target_of(t->plan->source, loss)->shape;
    return meg_box_size(all) / meg_extent(all, MEG_N) * t->plan->options.batch;
}

static void add_targets(meg_trainer *t)
{
    meg_outside *o = t->outside;
    const meg_graph *g = t->plan->source;
    o->feed.count = o->inputs;
    for (int i = 0; i < g->losses; i++)
        o->fed[o->feed.count++] = (meg_fed){.name = target_of(g, i)->name,
                                            .data = o->target[i],
                                            .dtype = meg_engine_real(t->engine)};
    o->feed.fed = o->fed;
}

static void prepare(meg_trainer *t)
{
    const meg_graph *g = t->plan->source;
    if (t->outside) return;
    meg_outside *o = t->outside = meg_pool_alloc(t->pool, sizeof *o);
    size_t each = (size_t)meg_dtype_bytes(meg_engine_real(t->engine));
    o->fed = meg_pool_alloc(t->pool, (size_t)g->values * sizeof *o->fed);
    o->ids = meg_pool_alloc(t->pool, (size_t)g->values * sizeof *o->ids);
    for (int i = 0; i < g->losses; i++)
        o->target[i] = meg_pool_alloc(t->pool, (size_t)target_size(t, i) * each);
}

/* ---- forward ---- */

static meg_status find_entry(const meg_trainer *t, int64_t batch, int *entry)
{
    const meg_plan *p = t->plan;
    int64_t tail = p->entry[MEG_ENTRY_TRAIN_TAIL].batch;
    *entry = batch == p->options.batch ? MEG_ENTRY_TRAIN : MEG_ENTRY_TRAIN_TAIL;
    MEG_CHECK(&t->ctx->error, batch == p->options.batch || (tail && batch == tail), MEG_EARG,
              "a batch of %" PRId64 " samples, but the plan was made for %" PRId64
              ": give as many, or plan for a data set whose last batch has %" PRId64,
              batch, p->options.batch, batch);
    return MEG_OK;
}

static meg_status check_outputs(const meg_trainer *t, int count, const meg_tensor out[])
{
    meg_error *e = &t->ctx->error;
    for (int i = 0; i < count; i++) {
        meg_output found;
        MEG_TRY(e, meg_output_find(t, out[i].name, &found));
        meg_tensor like = meg_output_tensor(t, &found, t->outside->batch);
        MEG_CHECK(e, out[i].data || meg_rank(t->ctx) > 0, MEG_EARG,
                  "%s: rank 0 has no memory for its numbers", like.name);
        if (out[i].data) MEG_TRY(e, meg_caller_check(e, &out[i], &like, t->plan->source->name));
    }
    return MEG_OK;
}

typedef struct lists { /* of the caller */
    int inputs, outputs;
    const meg_tensor *input;
    meg_tensor *output;
} lists;

/* What a rank can do wrong on its own. */
static meg_status make_ready(meg_trainer *t, const lists *l)
{
    meg_error *e = &t->ctx->error;
    const meg_graph *g = t->plan->source;
    MEG_CHECK(e, meg_graph_late(g), MEG_EARG,
              "%s has its own loss: end it with the loss \"outside\" to compute one yourself",
              g->name);
    MEG_CHECK(e, l->inputs > 0 && l->input[0].rank > 0, MEG_EARG, "%s got no input", g->name);
    meg_engine_give_up(t->engine); /* a step that was not gone on with; its inputs may be gone */
    prepare(t);
    meg_outside *o = t->outside;
    o->inputs = 0;
    o->done = false;
    o->batch = l->input[0].shape[0];
    MEG_TRY(e, find_entry(t, o->batch, &o->entry));
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT)
            MEG_TRY(
                e, take_input(t, &g->value[i], find_tensor(g->value[i].name, l->inputs, l->input)));
    add_targets(t);
    return check_outputs(t, l->outputs, l->output);
}

static int64_t bytes_of(const meg_tensor *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= t->shape[i];
    return bytes;
}

static meg_status deliver(meg_trainer *t, const meg_output *o, meg_tensor *to)
{
    int64_t batch = t->outside->batch;
    meg_tensor like = meg_output_tensor(t, o, batch);
    like.dtype = to->dtype;
    MEG_TRY(&t->ctx->error,
            meg_output_gather(t, t->outside->entry, o, to, (meg_sample_range){0, batch}));
    return meg_caller_share(t->ctx, to->data, bytes_of(&like));
}

static meg_status deliver_output(meg_trainer *t, meg_tensor *to)
{
    meg_output o;
    MEG_TRY(&t->ctx->error, meg_output_find(t, to->name, &o));
    return deliver(t, &o, to);
}

meg_status meg_forward(meg_trainer *t, int inputs, const meg_tensor input[], int outputs,
                       meg_tensor output[])
{
    meg_error *e = &t->ctx->error;
    const lists l = {inputs, outputs, input, output};
    meg_token same[] = {{"another number of samples", (uint64_t)(inputs ? input[0].shape[0] : 0)},
                        {"another number of outputs", (uint64_t)outputs}};
    MEG_TRY(e, meg_context_same(t->ctx, same, 2));
    MEG_TRY(e, meg_context_agree(t->ctx, make_ready(t, &l)));
    meg_outside *o = t->outside;
    o->feed.scalars = (meg_scalars){meg_trainer_rate(t), (double)(t->step + 1), 0, 1};
    o->feed.seed = t->seed;
    o->feed.step = (uint64_t)t->step;
    MEG_TRY(e, meg_context_end(t->ctx, meg_engine_forward(t->engine, e, o->entry, &o->feed)));
    for (int i = 0; i < outputs; i++)
        MEG_TRY(e, deliver_output(t, &output[i]));
    return MEG_OK;
}

/* ---- backward ---- */

static meg_status check_gradients(const meg_trainer *t, int count, const meg_tensor gradient[])
{
    meg_error *e = &t->ctx->error;
    MEG_CHECK(e, meg_engine_paused(t->engine), MEG_EARG,
              "there is nothing to go back through: meg_forward comes first, and nothing else that "
              "runs the network in between");
    return check_outputs(t, count, gradient);
}

/* Rank 0's numbers, in the order that the engine takes them; outputs without a gradient do not matter. */
static meg_status take_gradients(meg_trainer *t, int count, const meg_tensor gradient[])
{
    meg_outside *o = t->outside;
    meg_dtype real = meg_engine_real(t->engine);
    for (int i = 0; i < t->plan->source->losses; i++)
        memset(o->target[i], 0, (size_t)(target_size(t, i) * meg_dtype_bytes(real)));
    for (int i = 0; i < count; i++) {
        meg_output out;
        MEG_TRY(&t->ctx->error, meg_output_find(t, gradient[i].name, &out));
        if (meg_rank(t->ctx) == 0)
            meg_output_take(&out, &gradient[i], o->target[out.index], real, o->batch);
    }
    for (int i = 0; i < t->plan->source->losses && meg_ranks(t->ctx) > 1; i++)
        MEG_TRY(&t->ctx->error, meg_comm_share(t->ctx->comm, &t->ctx->error, 0, o->target[i],
                                               target_size(t, i) * meg_dtype_bytes(real)));
    return MEG_OK;
}

meg_status meg_backward(meg_trainer *t, int outputs, const meg_tensor gradient[])
{
    meg_error *e = &t->ctx->error;
    meg_outcome ignored; /* the loss is outside */
    meg_token same = {"another number of gradients", (uint64_t)outputs};
    MEG_TRY(e, meg_context_same(t->ctx, &same, 1));
    MEG_TRY(e, meg_context_agree(t->ctx, check_gradients(t, outputs, gradient)));
    MEG_TRY(e, meg_context_end(t->ctx, take_gradients(t, outputs, gradient)));
    MEG_TRY(e, meg_context_end(t->ctx, meg_engine_backward(t->engine, e)));
    MEG_TRY(e, meg_context_end(t->ctx, meg_engine_outcome(t->engine, e, &ignored)));
    t->step++;
    t->outside->done = true;
    return MEG_OK;
}

/* ---- gradients by inputs ---- */

static const meg_value *input_of(const meg_graph *g, const char *name)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT && (!name || strcmp(g->value[i].name, name) == 0))
            return &g->value[i];
    return NULL;
}

static meg_status find_gradient(const meg_trainer *t, const meg_tensor *to, meg_output *out)
{
    meg_error *e = &t->ctx->error;
    const meg_outside *o = t->outside;
    const meg_value *x = input_of(t->plan->source, to->name);
    MEG_CHECK(e, t->plan->options.input_grads, MEG_EARG,
              "%s was planned without memory for gradients by its inputs: make the plan with "
              "input_grads=1",
              t->plan->source->name);
    MEG_CHECK(e, x, MEG_EARG, "%s has no input '%s'", t->plan->source->name, to->name);
    MEG_CHECK(e, x->dtype != MEG_I32, MEG_EARG,
              "'%s' takes whole numbers, by which there is no gradient", x->name);
    MEG_CHECK(
        e, o && o->done && !meg_engine_paused(t->engine) && meg_engine_last(t->engine) == o->entry,
        MEG_EARG,
        "there is no gradient by '%s': meg_backward comes first, and nothing else that runs "
        "the network in between",
        x->name);
    MEG_CHECK(e, to->data || meg_rank(t->ctx) > 0, MEG_EARG,
              "%s: rank 0 has no memory for its numbers", x->name);
    *out = (meg_output){MEG_ROLE_INPUT_GRADIENT,
                        meg_graph_find_value(t->plan->entry[o->entry].graph, x->name), x, false};
    meg_tensor like = meg_output_tensor(t, out, o->batch);
    return to->data ? meg_caller_check(e, to, &like, t->plan->source->name) : MEG_OK;
}

meg_status meg_input_gradient(meg_trainer *t, meg_tensor *gradient)
{
    meg_output o;
    meg_token same = {"another type of numbers", (uint64_t)gradient->dtype};
    MEG_TRY(&t->ctx->error, meg_context_same(t->ctx, &same, 1));
    MEG_TRY(&t->ctx->error, meg_context_agree(t->ctx, find_gradient(t, gradient, &o)));
    if (gradient->data)
        memset(gradient->data, 0, (size_t)bytes_of(gradient)); /* shares are added */
    return deliver(t, &o, gradient);
}
