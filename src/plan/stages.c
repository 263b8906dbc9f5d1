/* Stages: see stages.h. */
#include "plan/stages.h"
#include "graph/groups.h"

#include <string.h>

/* Losses, what counts for them and what is made of labels alone stay with the logits. */
static void settle_losses(const meg_graph *g, int stage[])
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = g->nodes - 1; i >= 0; i--) {
            const meg_node *v = &g->node[i];
            for (int k = 0; k < v->inputs; k++) {
                const meg_value *x = &g->value[v->in[k]];
                if (pass == 0 && x->kind == MEG_LABEL && v->inputs > 1 &&
                    g->value[v->in[0]].maker >= 0)
                    stage[i] = stage[g->value[v->in[0]].maker];
                if (pass == 1 && x->maker >= 0 && g->node[x->maker].op->per_step)
                    stage[x->maker] = stage[i];
            }
        }
}

meg_status meg_plan_stages(meg_plan *p, meg_error *e)
{
    const meg_graph *g = p->source;
    int stages = (int)p->options.stages;
    p->stage = meg_pool_alloc(p->pool, ((size_t)g->nodes + 1) * sizeof(int));
    if (stages == 1) return MEG_OK;
    meg_groups *s = meg_groups_new(g, (meg_level)p->options.level);
    meg_status status = MEG_OK;
    double all = 0, done = 0;
    for (int i = 0; i < s->count; i++)
        all += s->group[i].flops;
    for (int i = 0; i < s->count; i++) {
        int at = (int)((done + s->group[i].flops / 2) / all * stages);
        for (int k = 0; k < s->group[i].nodes; k++)
            p->stage[s->group[i].node[k]] = at < stages ? at : stages - 1;
        done += s->group[i].flops;
    }
    (void)e;
    meg_groups_free(s);
    settle_losses(g, p->stage);
    return status;
}
