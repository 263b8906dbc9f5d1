/* Data sets of the public interface that lie in the caller's memory, or that he reads for us. */
#include "data/arrays.h"
#include "base/option.h"
#include "train/context.h"

#include <stdlib.h>

typedef struct settings {
    const char *name;
} settings;

static const meg_param PARAMS[] = {
    {"name", MEG_PARAM_STRING, offsetof(settings, name), "memory", "of the data set, for messages",
     NULL, 0, 0},
    {0},
};

static meg_status open_arrays(meg_context *ctx, const meg_arrays *a, meg_data **out)
{
    meg_data *d = calloc(1, sizeof *d);
    if (!d) return meg_fail(&ctx->error, MEG_ENOMEM, "no memory for a data set");
    d->ctx = ctx;
    meg_status status = meg_dataset_arrays(&ctx->error, a, &d->set);
    if (status == MEG_OK) *out = d;
    else free(d);
    return status;
}

meg_status meg_data_memory(meg_context *ctx, int count, const meg_tensor tensors[],
                           const char *options, meg_data **out)
{
    settings s;
    meg_pool *pool = meg_pool_new();
    meg_status status = meg_options_fill(&ctx->error, &(meg_form){PARAMS, "memory", pool}, options,
                                         &s);
    if (status == MEG_OK)
        status = open_arrays(ctx, &(meg_arrays){count, tensors, NULL, s.name}, out);
    meg_pool_free(pool);
    return status;
}

meg_status meg_data_lazy(meg_context *ctx, int count, const meg_tensor tensors[],
                         const meg_lazy *how, meg_data **out)
{
    MEG_CHECK(&ctx->error, how && how->read, MEG_EARG, "there is no function that reads samples");
    return open_arrays(ctx, &(meg_arrays){count, tensors, how, "samples"}, out);
}
