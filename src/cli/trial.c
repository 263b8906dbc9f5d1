/* Trials: see trial.h. */
#include "cli/trial.h"
#include "plan/named.h"

#include <inttypes.h>

enum {
    BATCHES = 4 /* of the data set */
};

const char meg_trial_rate[] = "lr=0.001";

const char *meg_trial_words(const meg_arguments *a, const char *plan)
{
    bool said = meg_arguments_has(a, MEG_TO_PLAN, "momentum") ||
                meg_arguments_has(a, MEG_TO_PLAN, "optimizer") ||
                (plan && !meg_named_plan_find(plan));
    return said ? "" : "momentum=0.9";
}

/* " word=AxBxC": the extents of a value behind the samples, from axis `first` of its file. */
static const char *extents(meg_pool *pool, const char *word, const meg_value *x, int first)
{
    const char *text = meg_pool_text(pool, " %s=", word);
    for (int i = first; i < x->rank; i++)
        text = meg_pool_text(pool, "%s%s%" PRId64, text, i > first ? "x" : "", x->dims[i]);
    return text;
}

static const meg_value *input_of(const meg_graph *g)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT) return &g->value[i];
    return NULL;
}

meg_status meg_trial_data(meg_session *s, const meg_plan *p, meg_data **out)
{
    meg_pool *pool = s->arguments->pool;
    const meg_graph *g = s->graph;
    const meg_value *x = input_of(g);
    MEG_CHECK(s->error, x && g->losses, MEG_EARG, "%s has no %s: it cannot be trained", g->name,
              x ? "loss" : "input");
    const meg_node *loss = &g->node[g->value[g->loss[0].value].maker];
    const meg_value *label = &g->value[loss->in[1]];
    bool real = label->dtype != MEG_I32, tokens = x->dtype == MEG_I32;
    const char *text = meg_pool_text(pool, "synthetic:%s", extents(pool, "image", x, 1));
    if (label->rank > 1)
        text = meg_pool_text(pool, "%s%s", text, extents(pool, "extent", label, 1));
    text = meg_pool_text(pool, "%s labels=%s tokens=%d classes=%" PRId64 " count=%" PRId64, text,
                         real              ? "real"
                         : label->rank > 1 ? "pixels"
                                           : "sample",
                         tokens, g->value[loss->in[0]].shape.hi[MEG_C], BATCHES * p->options.batch);
    return meg_session_data(s, text, out);
}

static bool watch(void *context, const meg_progress *p)
{
    meg_measure_add(context, p->seconds);
    return true;
}

meg_status meg_trial_steps(meg_trial_run *t, meg_march *m, int64_t steps, bool counts)
{
    meg_status status = MEG_OK;
    if (counts) meg_trainer_watch(t->trainer, watch, &t->steps);
    for (int64_t i = 0; i < steps && status == MEG_OK; i++) {
        meg_bar_show(&m->bar, m->done++, m->total);
        status = meg_train(t->trainer, 1, &t->last);
    }
    meg_trainer_watch(t->trainer, NULL, NULL);
    meg_bar_clear(&m->bar);
    return status;
}
