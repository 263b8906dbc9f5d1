/* Context, data and registries of the public interface. */
#define _GNU_SOURCE /* CPU_COUNT */
#include "train/context.h"
#include "zoo/zoo.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(meg_context_options, field)

const meg_param meg_context_params[] = {
    {"device", MEG_PARAM_TEXT, AT(device), "cpu", "who computes: megalith list devices", NULL, 0,
     0},
    {"threads", MEG_PARAM_INT, AT(threads), "0", "of the cpu device (0: all this process may use)",
     NULL, 0, 4096},
    {"seed", MEG_PARAM_INT, AT(seed), "1", "of all random numbers", NULL, 0, 1e15},
    {"log", MEG_PARAM_CHOICE, AT(log), "warn", "what is said on stderr", "quiet|warn|info|debug", 0,
     0},
    {NULL, 0, 0, NULL, NULL, NULL, 0, 0}};

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

meg_status meg_open(const char *options, meg_context **out)
{
    meg_context *ctx = calloc(1, sizeof *ctx);
    *out = ctx;
    if (!ctx) return MEG_ENOMEM;
    MEG_TRY(&ctx->error, meg_options_parse(&ctx->error, meg_context_params, "context", options,
                                           &ctx->options));
    ctx->log.level = (meg_log_level)ctx->options.log;
    if (ctx->options.threads == 0) ctx->options.threads = usable_cores();
    return meg_device_open(&ctx->error, ctx->options.device, (int)ctx->options.threads,
                           &ctx->device);
}

void meg_close(meg_context *ctx)
{
    if (!ctx) return;
    meg_device_close(ctx->device);
    free(ctx);
}

const char *meg_message(const meg_context *ctx)
{
    return ctx ? ctx->error.message : "out of memory";
}

static void describe(void *context, const meg_request *r, meg_spec *s)
{
    meg_device_describe(context, r, s);
}

meg_profile meg_context_profile(meg_context *ctx)
{
    return (meg_profile){ctx->device, describe, meg_device_real(ctx->device)};
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
