/* Advice: see advice.h. */
#include "train/advice.h"
#include "base/clock.h"
#include "exec/profile.h"
#include "train/outlook/remedy.h"

#include <string.h>
#include <time.h>

static const double PATIENCE =
    2; /* seconds for a kind of advice; a rank more is planned, perhaps */

typedef struct patience {
    int kind;
    double begin; /* of this kind, in the thread's own time: others' load changes no advice */
} patience;

static bool enough(void *context, int kind)
{
    patience *p = context;
    if (p->kind != kind) *p = (patience){kind, meg_clock_thread()};
    return meg_clock_thread() - p->begin > PATIENCE;
}

int meg_context_ways(const meg_graph *g, const meg_data *d, const meg_too_large *plan,
                     meg_advice out[MEG_ADVICES])
{
    meg_context *ctx = g->owner;
    meg_profile profile = meg_profile_priced(ctx->device, ctx->prices);
    patience waited = {.kind = -1};
    bool real = plan->ranks == meg_comm_size(ctx->comm);
    meg_advice_ask ask = {.graph = g,
                          .profile = &profile,
                          .options = plan->options,
                          .samples = d ? d->set.count : 0,
                          .ranks = plan->ranks,
                          .machines = real ? meg_comm_nodes(ctx->comm) : 1,
                          .machine = plan->machine,
                          .enough = enough,
                          .context = &waited};
    return meg_advise(&ask, out);
}

void meg_context_advise(const meg_graph *g, const meg_data *d, const meg_too_large *plan)
{
    meg_context *ctx = g->owner;
    meg_error trouble = {0};
    meg_advice list[MEG_ADVICES];
    char *message = ctx->error.message;
    size_t used = strlen(message), size = sizeof ctx->error.message;
    if (meg_comm_rank(ctx->comm) == 0) {
        int count = meg_context_ways(g, d, plan, list);
        bool helped = strstr(message,
                             MEG_REMEDY); /* a search found something that these ways have not */
        if (count || !helped) meg_advice_text(list, count, message + used, size - used);
    }
    if (meg_comm_size(ctx->comm) > 1)
        meg_comm_share(ctx->comm, &trouble, 0, message, (int64_t)size);
}

const char *meg_plan_words(const meg_plan *p, meg_pool *pool)
{
    return meg_pool_text(pool, "%s %s", meg_options_text(pool, meg_plan_params, &p->options),
                         meg_options_text(pool, p->optimizer->params, p->settings));
}
