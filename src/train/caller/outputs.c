/* Outputs of the network, as a step leaves them: each rank has boxes of them, rank 0 puts them together in the
 * caller's tensor (see caller.h). Gradients by inputs likewise: their boxes may overlap, and add up.
 *
 *     rank 0    how many boxes?   places its own    box, numbers   box, numbers ...
 *     rank 1    2                                   ^
 *     rank 2    0
 */
#include "train/caller/caller.h"

#include <stdlib.h>
#include <string.h>

/* ---- names and shapes ---- */

static meg_output output_of(const meg_trainer *t, int index)
{
    const meg_graph *g = t->plan->source;
    int value[MEG_OUTPUTS];
    meg_graph_results(g, value);
    meg_output out = {MEG_ROLE_OUTPUT, index, &g->value[value[index]], false};
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i] == value[index]) out.last = g->last[i];
    return out;
}

meg_tensor meg_output_tensor(const meg_trainer *t, const meg_output *o, int64_t samples)
{
    const meg_value *v = o->value;
    meg_tensor out = {.name = v->name, .dtype = meg_engine_real(t->engine), .rank = v->rank};
    for (int i = 0; i < v->rank; i++)
        out.shape[i] = v->dims[i];
    for (int i = 1; o->last && i < v->rank; i++)
        out.shape[i] = v->dims[i + 1 < v->rank ? i + 1 : 1];
    out.shape[0] = samples;
    return out;
}

int meg_outputs(const meg_trainer *t)
{
    int value[MEG_OUTPUTS];
    return meg_graph_results(t->plan->source, value);
}

bool meg_output_at(const meg_trainer *t, int i, meg_tensor *out)
{
    if (i < 0 || i >= meg_outputs(t)) return false;
    meg_output o = output_of(t, i);
    *out = meg_output_tensor(t, &o, t->plan->options.batch);
    return true;
}

meg_status meg_output_find(const meg_trainer *t, const char *name, meg_output *out)
{
    for (int i = 0; i < meg_outputs(t); i++) {
        meg_output o = output_of(t, i);
        if (name && strcmp(o.value->name, name) != 0) continue;
        *out = o;
        return MEG_OK;
    }
    return meg_fail(&t->ctx->error, MEG_EARG,
                    "%s has no output '%s': meg_output_at tells those that there are",
                    t->plan->source->name, name ? name : "");
}

/* ---- numbers ---- */

typedef struct gathering {
    meg_trainer *trainer;
    const meg_output *output;
    meg_tensor *to;
    meg_sample_range range;
    int64_t boxes; /* of this rank */
    meg_status status;
} gathering;

/* Elements from one to the next along each axis of the caller's tensor. */
static void strides_of(const meg_output *o, int64_t stride[MEG_AXES])
{
    static const int usual[] = {MEG_W, MEG_H, MEG_D, MEG_C, MEG_N};
    static const int turned[] = {MEG_C, MEG_W, MEG_H, MEG_D, MEG_N};
    int64_t next = 1;
    for (int i = 0; i < MEG_AXES; i++) {
        int axis = (o->last ? turned : usual)[i];
        stride[axis] = next;
        next *= meg_extent(&o->value->shape, axis);
    }
}

static void place(const gathering *g, const meg_box *box, const void *data)
{
    int64_t stride[MEG_AXES], p[MEG_AXES], at = 0, run = meg_extent(box, MEG_W);
    meg_dtype real = meg_engine_real(g->trainer->engine);
    bool adds = g->output->role == MEG_ROLE_INPUT_GRADIENT;
    meg_box rows = *box;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    strides_of(g->output, stride);
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p), at += run) {
        int64_t to = g->range.first * stride[MEG_N];
        if (p[MEG_N] >= g->range.count) continue; /* was filled up */
        for (int a = 0; a < MEG_AXES; a++)
            to += p[a] * stride[a];
        for (int64_t i = 0; i < run; i++, to += stride[MEG_W]) {
            double before = adds ? meg_number_at(g->to->data, g->to->dtype, to) : 0;
            meg_number_set(g->to->data, g->to->dtype, to,
                           before + meg_number_at(data, real, at + i));
        }
    }
}

void meg_output_take(const meg_output *o, const meg_tensor *from, void *to, meg_dtype real,
                     int64_t samples)
{
    int64_t stride[MEG_AXES], p[MEG_AXES], i = 0;
    meg_box all = o->value->shape;
    all.hi[MEG_N] = samples;
    strides_of(o, stride);
    for (bool on = meg_box_first(&all, p); on; on = meg_box_next(&all, p)) {
        int64_t at = 0;
        for (int a = 0; a < MEG_AXES; a++)
            at += p[a] * stride[a];
        meg_number_set(to, real, i++, meg_number_at(from->data, from->dtype, at));
    }
}

static void count_box(void *context, const meg_box *box, void *data)
{
    (void)box, (void)data;
    ((gathering *)context)->boxes++;
}

static void place_box(void *context, const meg_box *box, void *data)
{
    place(context, box, data);
}

static int tag_of(const gathering *g)
{
    return meg_comm_tags(g->trainer->ctx->comm) - 1; /* of collective calls: see collect.c */
}

static meg_status message(const gathering *g, int peer, void *data, int64_t bytes)
{
    meg_context *ctx = g->trainer->ctx;
    meg_letter *m = NULL;
    if (meg_rank(ctx) == 0)
        MEG_TRY(&ctx->error,
                meg_comm_recv(ctx->comm, &ctx->error, peer, tag_of(g), data, bytes, &m));
    else
        MEG_TRY(&ctx->error,
                meg_comm_send(ctx->comm, &ctx->error, peer, tag_of(g), data, bytes, &m));
    return meg_comm_wait(ctx->comm, &ctx->error, &m);
}

static int64_t bytes_of(const gathering *g, const meg_box *box)
{
    return meg_box_size(box) * meg_dtype_bytes(meg_engine_real(g->trainer->engine));
}

static void send_box(void *context, const meg_box *box, void *data)
{
    gathering *g = context;
    meg_box copy = *box;
    if (g->status == MEG_OK) g->status = message(g, 0, &copy, sizeof copy);
    if (g->status == MEG_OK) g->status = message(g, 0, data, bytes_of(g, box));
}

static meg_status receive_box(const gathering *g, int rank)
{
    meg_context *ctx = g->trainer->ctx;
    meg_box box;
    MEG_TRY(&ctx->error, message(g, rank, &box, sizeof box));
    void *data = malloc((size_t)bytes_of(g, &box) + 1);
    MEG_CHECK(&ctx->error, data, MEG_ENOMEM, "no memory for the outputs of rank %d", rank);
    meg_status status = message(g, rank, data, bytes_of(g, &box));
    if (status == MEG_OK) place(g, &box, data);
    free(data);
    return status;
}

static meg_status gather(gathering *g, int entry, int64_t *boxes)
{
    meg_context *ctx = g->trainer->ctx;
    meg_engine *x = g->trainer->engine;
    const meg_kept what = {entry, g->output->role, g->output->index};
    meg_engine_kept(x, &what, count_box, g);
    if (meg_ranks(ctx) > 1)
        MEG_TRY(&ctx->error,
                meg_comm_gather(ctx->comm, &ctx->error, &g->boxes, sizeof *boxes, boxes));
    meg_engine_kept(x, &what, meg_rank(ctx) == 0 ? place_box : send_box, g);
    MEG_TRY(&ctx->error, g->status);
    for (int r = 1; r < meg_ranks(ctx) && meg_rank(ctx) == 0; r++)
        for (int64_t i = 0; i < boxes[r]; i++)
            MEG_TRY(&ctx->error, receive_box(g, r));
    return MEG_OK;
}

meg_status meg_output_gather(meg_trainer *t, int entry, const meg_output *o, meg_tensor *to,
                             meg_sample_range range)
{
    gathering g = {.trainer = t, .output = o, .to = to, .range = range};
    int64_t *boxes = calloc((size_t)meg_ranks(t->ctx), sizeof *boxes);
    if (!boxes) abort();
    meg_status status = gather(&g, entry, boxes);
    free(boxes);
    return meg_context_end(t->ctx, status);
}
