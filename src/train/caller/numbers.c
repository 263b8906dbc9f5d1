/* Numbers in the caller's memory: see caller.h. */
#include "train/caller/caller.h"

#include <inttypes.h>
#include <stdlib.h>

double meg_number_at(const void *data, meg_dtype type, int64_t i)
{
    return type == MEG_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

void meg_number_set(void *data, meg_dtype type, int64_t i, double number)
{
    if (type == MEG_F64) ((double *)data)[i] = number;
    else ((float *)data)[i] = (float)number;
}

static void shape_text(char *out, size_t size, const meg_tensor *t)
{
    size_t used = (size_t)snprintf(out, size, "(");
    for (int i = 0; i < t->rank && i < 8 && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    if (used < size) snprintf(out + used, size - used, ")");
}

meg_status meg_caller_check(meg_error *e, const meg_tensor *t, const meg_tensor *like,
                            const char *whose)
{
    char has[200], needs[200];
    bool same = t->rank == like->rank;
    MEG_CHECK(e, t->dtype == MEG_F32 || t->dtype == MEG_F64, MEG_EARG,
              "%s: its numbers are real: use MEG_F32 or MEG_F64", like->name);
    for (int i = 0; same && i < like->rank; i++)
        same = t->shape[i] == like->shape[i];
    shape_text(has, sizeof has, t);
    shape_text(needs, sizeof needs, like);
    MEG_CHECK(e, same, MEG_EARG, "%s of %s is %s, not %s", like->name, whose, needs, has);
    return MEG_OK;
}

/* Those between rank 0 and one that wants it pass it on. */
static meg_status share(meg_context *ctx, void *data, int64_t bytes)
{
    void *room = data ? NULL : malloc((size_t)bytes + 1), *at = data ? data : room;
    meg_status status = at ? MEG_OK
                           : meg_fail(&ctx->error, MEG_ENOMEM,
                                      "no memory to pass on %" PRId64 " bytes", bytes);
    status = meg_context_agree(ctx, status);
    if (status == MEG_OK) status = meg_comm_share(ctx->comm, &ctx->error, 0, at, bytes);
    free(room);
    return status;
}

meg_status meg_caller_share(meg_context *ctx, void *data, int64_t bytes)
{
    int ranks = meg_ranks(ctx);
    char mine = data != NULL, *all = calloc((size_t)ranks, 1);
    bool any = false;
    if (!all) abort();
    meg_status status = ranks > 1 ? meg_comm_gather(ctx->comm, &ctx->error, &mine, 1, all) : MEG_OK;
    for (int r = 1; r < ranks; r++)
        any = any || all[r];
    free(all);
    if (status == MEG_OK && any) status = share(ctx, data, bytes);
    return status;
}
