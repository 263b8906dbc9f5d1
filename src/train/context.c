/* Context, data and registries of the public interface. The context has the communicator of the job:
 * its ranks begin and end together, and fail together.
 */
#include "train/context.h"
#include "comm/cores.h"
#include "train/build.h"
#include "train/outlook/foresight.h"
#include "train/rules.h"
#include "zoo/zoo.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- ranks ---- */

meg_status meg_context_agree(meg_context *ctx, meg_status status)
{
    if (meg_comm_size(ctx->comm) == 1) return status;
    if (status == MEG_OK) ctx->error.status = MEG_OK; /* of an earlier call */
    return meg_comm_agree(ctx->comm, &ctx->error);
}

meg_status meg_context_same(meg_context *ctx, const meg_token *token, int count)
{
    int ranks = meg_comm_size(ctx->comm), wrong = 0, which = 0;
    size_t each = (size_t)count;
    if (ranks == 1) return MEG_OK;
    uint64_t *all = calloc((size_t)(ranks + 1) * each, sizeof *all); /* the last row: mine */
    MEG_CHECK(&ctx->error, all, MEG_ENOMEM, "no memory to compare %d ranks", ranks);
    uint64_t *mine = all + (size_t)ranks * each;
    for (int i = 0; i < count; i++)
        mine[i] = token[i].value;
    meg_status status = meg_comm_gather(ctx->comm, &ctx->error, mine, (int64_t)(each * sizeof *all),
                                        all);
    for (int i = 0; i < count && !wrong; i++)
        for (int r = 1; r < ranks && !wrong; r++)
            if (all[(size_t)r * each + (size_t)i] != all[i]) wrong = r, which = i;
    free(all);
    MEG_TRY(&ctx->error, status);
    MEG_CHECK(&ctx->error, !wrong, MEG_EARG, "rank %d has %s than rank 0", wrong,
              token[which].what);
    return MEG_OK;
}

meg_status meg_context_end(meg_context *ctx, meg_status status)
{
    if (status == MEG_OK || meg_comm_size(ctx->comm) == 1) return status;
    meg_abort(ctx, ctx->error.message);
}

/* ---- context ---- */

/* What a rank can do wrong on its own. */
static meg_status open_device(meg_context *ctx, int cores)
{
    meg_context_options *o = &ctx->options;
    ctx->told = o->threads > 0;
    if (!ctx->told) o->threads = cores;
    return meg_device_open(&ctx->error, o->device, (int)o->threads, &ctx->device);
}

/* All that comes after the communicator. */
static meg_status open_context(meg_context *ctx, const char *options)
{
    meg_error *e = &ctx->error;
    const meg_form form = {meg_context_params, "context", ctx->pool};
    *e = (meg_error){0};
    meg_options_fill(e, &form, options, &ctx->options);
    MEG_TRY(e, meg_context_agree(ctx, e->status));
    ctx->log.level = (meg_log_level)ctx->options.log;
    if (meg_comm_rank(ctx->comm) > 0 && ctx->log.level < MEG_DEBUG) ctx->log.level = MEG_QUIET;

    bool many = meg_comm_size(ctx->comm) > 1;
    meg_token build = {"another build of Megalith", many ? meg_build_hash() : 0};
    meg_cores cores;
    MEG_TRY(e, meg_context_same(ctx, &build, 1));
    MEG_TRY(e, meg_cores_share(ctx->comm, e, ctx->options.pin, (int)ctx->options.threads, &cores));
    ctx->all_cores = cores.all;
    MEG_TRY(e, meg_context_agree(ctx, meg_context_judge(ctx, e, options)));
    return meg_context_agree(ctx, open_device(ctx, cores.share));
}

meg_status meg_context_open(const char *options, meg_comm *comm, meg_context **out)
{
    meg_context *ctx = calloc(1, sizeof *ctx);
    *out = ctx;
    if (!ctx) return MEG_ENOMEM;
    ctx->pool = meg_pool_new();
    ctx->comm = comm;
    if (!comm) MEG_TRY(&ctx->error, meg_comm_open(&ctx->error, &ctx->comm));
    return open_context(ctx, options);
}

meg_status meg_open(const char *options, meg_context **out)
{
    return meg_context_open(options, NULL, out);
}

meg_status meg_open_on(const char *options, int comm, meg_context **out)
{
    meg_error e = {0};
    meg_comm *c = NULL;
    if (meg_comm_open_on(&e, comm, &c) == MEG_OK) return meg_context_open(options, c, out);
    meg_context *ctx = *out = calloc(1, sizeof *ctx);
    if (!ctx) return MEG_ENOMEM;
    ctx->error = e;
    return e.status;
}

/* A rank that is alone in its trouble speaks at once; where several have the same, the lowest does. */
void meg_abort(meg_context *ctx, const char *message)
{
    int rank = meg_rank(ctx);
    struct timespec turn = {0, 50000000L * (rank < 10 ? rank : 10)};
    nanosleep(&turn, NULL);
    if (ctx && ctx->comm) meg_comm_abort(ctx->comm, 1, message);
    fprintf(stderr, "megalith: %s\n", message);
    exit(1);
}

void meg_close(meg_context *ctx)
{
    if (!ctx) return;
    meg_foresight_free(ctx->foresight);
    meg_device_close(ctx->device);
    meg_prices_free(ctx->prices);
    meg_comm_free(ctx->comm);
    meg_pool_free(ctx->pool);
    free(ctx->limit);
    free(ctx);
}

int meg_rank(const meg_context *ctx)
{
    return ctx && ctx->comm ? meg_comm_rank(ctx->comm) : 0;
}

int meg_ranks(const meg_context *ctx)
{
    return ctx && ctx->comm ? meg_comm_size(ctx->comm) : 1;
}

const char *meg_message(const meg_context *ctx)
{
    return ctx ? ctx->error.message : "out of memory";
}

meg_book_ask meg_context_book(const meg_context *ctx)
{
    const meg_context_options *o = &ctx->options;
    return (meg_book_ask){ctx->device, ctx->comm, ctx->imagined, o->prices, ctx->probes, &ctx->log};
}

meg_status meg_context_prices(meg_context *ctx)
{
    meg_book_ask ask = meg_context_book(ctx);
    if (!ctx->priced) MEG_TRY(&ctx->error, meg_book_open(&ask, &ctx->error, &ctx->prices));
    ctx->priced = true;
    return MEG_OK;
}

/* ---- data ---- */

meg_status meg_data_open(meg_context *ctx, const char *source, meg_data **out)
{
    meg_data *d = calloc(1, sizeof *d);
    if (!d) return meg_fail(&ctx->error, MEG_ENOMEM, "no memory to open %s", source);
    meg_status status = meg_dataset_open(&ctx->error, source, &d->set);
    if (status != MEG_OK) {
        free(d);
        return status;
    }
    for (size_t i = 0; i < sizeof d->set.findings.said / sizeof *d->set.findings.said; i++)
        if (*d->set.findings.said[i]) meg_log(&ctx->log, MEG_WARN, "%s", d->set.findings.said[i]);
    d->ctx = ctx;
    *out = d;
    return MEG_OK;
}

int64_t meg_data_count(const meg_data *d)
{
    return d->set.count;
}

void meg_data_free(meg_data *d)
{
    if (!d) return;
    meg_dataset_close(&d->set);
    free(d);
}

/* ---- registries ---- */

#define LISTER(noun, type, at)                                                                     \
    static bool list_##noun(int i, const char **name, const char **doc)                            \
    {                                                                                              \
        const type *found = at(i);                                                                 \
        if (found) *name = found->name, *doc = found->doc;                                         \
        return found != NULL;                                                                      \
    }

LISTER(ops, meg_op, meg_op_at)
LISTER(devices, meg_device_kind, meg_device_kind_at)
LISTER(readers, meg_reader, meg_reader_at)
LISTER(optimizers, meg_optimizer, meg_optimizer_at)
LISTER(models, meg_model, meg_zoo_at)

bool meg_list(const char *registry, int i, const char **name, const char **doc)
{
    static const struct {
        const char *name;
        bool (*at)(int i, const char **name, const char **doc);
    } lists[] = {{"ops", list_ops},
                 {"devices", list_devices},
                 {"readers", list_readers},
                 {"optimizers", list_optimizers},
                 {"models", list_models}};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        if (strcmp(registry, lists[k].name) == 0) return lists[k].at(i, name, doc);
    return false;
}
