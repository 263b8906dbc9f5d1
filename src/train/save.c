/* The weights of a trainer to and from files: safetensors, or ONNX with the network. Rank 0 writes and reads
 * for all.
 */
#include "import/onnx/onnx.h"
#include "train/checkpoint/weights.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    meg_trainer *trainer;
    const char *path;
    int64_t shard;
} job;

static meg_status collect(const job *j, int what, meg_collect_work *work)
{
    meg_context *ctx = j->trainer->ctx;
    return meg_collect(j->trainer->engine, ctx->comm, &ctx->error, what, work,
                       (void *)(uintptr_t)j);
}

static meg_status save(void *context, meg_collection *c, meg_error *e)
{
    const job *j = context;
    char step[32];
    snprintf(step, sizeof step, "%" PRId64, j->trainer->step);
    meg_saved_note notes[] = {{"megalith.model", j->trainer->plan->source->name},
                              {"megalith.step", step}};
    return meg_weights_write(c, e, &(meg_weights_file){j->path, notes, 2, j->shard, false});
}

meg_status meg_trainer_save(meg_trainer *t, const char *path)
{
    return collect(&(job){t, path, t->options.shard}, MEG_COLLECT_VALUES, save);
}

meg_status meg_trainer_save_gradients(meg_trainer *t, const char *path)
{
    MEG_CHECK(&t->ctx->error, t->plan->options.keep_grads || t->plan->options.micro > 1, MEG_EARG,
              "gradients are only there after a step of a plan with keep_grads=1");
    return collect(&(job){t, path, 0}, MEG_COLLECT_GRADIENTS | MEG_COLLECT_STATISTICS, save);
}

/* Checks all before it changes any. */
static meg_status load(void *context, meg_collection *c, meg_error *e)
{
    const job *j = context;
    meg_safetensors *f = NULL;
    meg_weights_file w = {.path = j->path};
    MEG_TRY(e, meg_safetensors_open(e, j->path, &f));
    meg_status status = meg_weights_check(c, e, &w, f, j->trainer->plan->source->name);
    if (status == MEG_OK) status = meg_weights_read(c, e, &w, f);
    meg_safetensors_close(f);
    return status;
}

meg_status meg_trainer_load(meg_trainer *t, const char *path)
{
    return collect(&(job){t, path, 0}, MEG_COLLECT_VALUES, load);
}

/* ---- exporting ---- */

typedef struct export
{
    meg_collection *c;
    meg_error *error;
    meg_status (*put)(void *to, const float *piece, int64_t count);
    void *to;
}
export;

static meg_status pass_on(void *context, const void *data, int64_t count)
{
    enum {
        RUN = 4096
    };
    const export *x = context;
    if (meg_collection_real(x->c) == MEG_F32) return x->put(x->to, data, count);
    for (int64_t i = 0; i < count; i += RUN) {
        float run[RUN];
        int64_t length = count - i < RUN ? count - i : RUN;
        for (int64_t k = 0; k < length; k++)
            run[k] = (float)((const double *)data)[i + k];
        MEG_TRY(x->error, x->put(x->to, run, length));
    }
    return MEG_OK;
}

/* The plan's graph is the user's, the engine's a rewritten one: they share the names. */
static bool get_numbers(void *context, const meg_value *v,
                        meg_status (*put)(void *to, const float *piece, int64_t count), void *to)
{
    export x = *(const export *)context;
    x.put = put;
    x.to = to;
    int item = meg_collection_find(x.c, v->name);
    return item >= 0 && meg_collection_get(x.c, x.error, item, pass_on, &x) == MEG_OK;
}

static meg_status write_network(void *context, meg_collection *c, meg_error *e)
{
    const job *j = context;
    export x = {.c = c, .error = e};
    meg_onnx_source weights = {get_numbers, &x};
    return meg_onnx_save(e, j->path, j->trainer->plan->source, &weights, 0);
}

meg_status meg_trainer_export(meg_trainer *t, const char *path)
{
    return collect(&(job){t, path, 0}, MEG_COLLECT_VALUES, write_network);
}
