/* Stages: see stages.h. The network is seen as groups of nodes (graph/groups.h), which are cut into
 * stages by hand or by dynamic programming (partition.h). Losses, and what is made of labels for
 * them, are no pieces of their own: they stay with the logits.
 *
 * Costs are estimates: the operators' flops, and memory traffic at the pace of eight flops a byte;
 * backward is twice forward. Only their ratios matter.
 */
#include "plan/partition/stages.h"
#include "base/nearest.h"
#include "graph/groups.h"
#include "graph/op.h"
#include "plan/partition/partition.h"
#include "plan/partition/pieces.h"
#include "plan/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double FLOPS_PER_BYTE = 8, PASSES = 3;

typedef struct view { /* the graph as pieces */
    meg_plan *plan;
    const meg_trial *trial; /* NULL: stages are alike in seconds */
    meg_groups *groups;
    bool *loss; /* (nodes) */
    int *piece; /* (groups): -1: losses alone */
    meg_cut cut;
} view;

/* ---- losses ---- */

bool *meg_losses_of(meg_pool *pool, const meg_graph *g)
{
    bool *is = meg_pool_alloc(pool, (size_t)g->nodes + 1);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++) {
            const meg_value *x = &g->value[g->node[i].in[k]];
            is[i] = is[i] || x->kind == MEG_LABEL || (x->maker >= 0 && is[x->maker]);
        }
    return is;
}

/* The stage of the first input that is not made of labels; then, backwards, of the reader. */
static void settle_losses(const meg_graph *g, const bool loss[], int stage[])
{
    for (int i = 0; i < g->nodes; i++)
        stage[i] = loss[i] ? -1 : stage[i];
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs && stage[i] < 0; k++) {
            int maker = g->value[g->node[i].in[k]].maker;
            if (maker >= 0) stage[i] = stage[maker];
        }
    for (int i = g->nodes - 1; i >= 0; i--)
        for (int k = 0; k < g->node[i].inputs; k++) {
            int maker = g->value[g->node[i].in[k]].maker;
            if (maker >= 0 && stage[maker] < 0) stage[maker] = stage[i];
        }
}

/* ---- pieces ---- */

static bool only_losses(const view *v, const meg_group *s)
{
    for (int i = 0; i < s->nodes; i++)
        if (!v->loss[s->node[i]]) return false;
    return true;
}

static meg_piece piece_of(const view *v, const meg_group *s)
{
    const meg_plan_options *o = &v->plan->options;
    double each = s->flops + FLOPS_PER_BYTE * (double)s->activation; /* the graph has one sample */
    return (meg_piece){.name = s->name, .seconds = PASSES * each * (double)(o->batch / o->micro)};
}

/* What pieces need, and how often each stage has it. */
static void weigh(view *v, meg_piece *piece)
{
    const meg_plan *even = v->trial->even;
    const meg_timetable *t = even->entry[MEG_ENTRY_TRAIN].timetable;
    const meg_graph *g = v->plan->source;
    int *of = meg_pool_alloc(v->plan->pool, ((size_t)g->nodes + 1) * sizeof *of);
    int *share = meg_pool_alloc(v->plan->pool, (size_t)t->stages * sizeof *share);
    for (int i = 0; i < g->nodes; i++)
        of[i] = v->loss[i] ? -1 : v->piece[v->groups->of[i]];
    settle_losses(g, v->loss, of);
    for (int i = 0; i < even->segments; i++) {
        int *least = &share[even->segment[i].stage];
        if (*least == 0 || even->segment[i].size < *least) *least = even->segment[i].size;
    }
    meg_pieces_weigh(even, v->trial->whole, of, piece, &v->cut);
    v->cut.directions = t->directions;
    v->cut.ranks = t->ranks;
    v->cut.seat = t->seat;
    v->cut.width = t->width;
    v->cut.frames = t->frames;
    v->cut.share = share;
}

static void cut_of(view *v)
{
    const meg_groups *s = v->groups;
    meg_pool *pool = v->plan->pool;
    meg_piece *piece = meg_pool_alloc(pool, ((size_t)s->count + 1) * sizeof *piece);
    meg_flow *flow = meg_pool_alloc(pool, ((size_t)s->edges + 1) * sizeof *flow);
    static const char *const noun[] = {"layers", "blocks", "modules"};
    const meg_graph *g = v->plan->source;
    v->piece = meg_pool_alloc(pool, ((size_t)s->count + 1) * sizeof(int));
    v->cut = (meg_cut){.model = g->name,
                       .noun = noun[v->plan->options.level],
                       .stages = (int)v->plan->options.stages,
                       .piece = piece,
                       .flow = flow,
                       .measure = v->trial ? MEG_MEASURE_MEMORY : MEG_MEASURE_COMPUTE};
    for (int i = 0; i < s->count; i++) {
        v->piece[i] = only_losses(v, &s->group[i]) ? -1 : v->cut.pieces;
        if (v->piece[i] >= 0) piece[v->cut.pieces++] = piece_of(v, &s->group[i]);
    }
    for (int i = 0; i < s->edges; i++) {
        const meg_group_edge *e = &s->edge[i];
        if (e->from < 0 || v->piece[e->from] < 0 || v->piece[e->to] < 0) continue;
        const meg_value *x = &g->value[e->value];
        flow[v->cut.flows++] = (meg_flow){.from = v->piece[e->from],
                                          .to = v->piece[e->to],
                                          .value = e->value,
                                          .bytes = meg_box_size(&x->shape) *
                                                   meg_dtype_bytes(x->dtype)};
    }
    if (v->trial) weigh(v, piece);
}

/* ---- by hand ---- */

static meg_status find_piece(const view *v, meg_error *e, const char *name, size_t length, int *out)
{
    char asked[MEG_TEXT], hint[MEG_HINT];
    snprintf(asked, sizeof asked, "%.*s", (int)length, name);
    meg_nearest n = meg_nearest_to(asked);
    for (int i = 0; i < v->cut.pieces; i++) {
        const char *has = v->cut.piece[i].name;
        if (strlen(has) == length && memcmp(has, name, length) == 0) {
            *out = i;
            return MEG_OK;
        }
        meg_nearest_try(&n, has);
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "assign: %s has no %.*s '%s'%s: `megalith show` lists the %s",
                    v->cut.model, (int)strlen(v->cut.noun) - 1, v->cut.noun, asked, hint,
                    v->cut.noun);
}

/* "layer2,layer3": the first piece of every stage but the first. */
static meg_status by_hand(view *v, meg_error *e, meg_partition **out)
{
    const char *at = v->plan->options.assign;
    int first[MEG_STAGES] = {0}, count = 1;
    while (*at && count < MEG_STAGES) {
        size_t length = strcspn(at, ",");
        MEG_TRY(e, find_piece(v, e, at, length, &first[count++]));
        at += length + (at[length] == ',');
    }
    MEG_CHECK(e, count == v->cut.stages, MEG_EARG,
              "assign names %d stage%s besides the first, but stages=%d: use stages=%d", count - 1,
              count == 2 ? "" : "s", v->cut.stages, count);
    return meg_partition_firsts(e, v->plan->pool, &v->cut, first, out);
}

/* ---- putting it together ---- */

static meg_status cut_graph(view *v, meg_error *e)
{
    meg_plan *p = v->plan;
    meg_partition *best = NULL;
    cut_of(v);
    if (p->options.assign[0]) MEG_TRY(e, by_hand(v, e, &best));
    else MEG_TRY(e, meg_partition_best(e, p->pool, &v->cut, &best));
    for (int i = 0; i < v->groups->count; i++)
        for (int k = 0; k < v->groups->group[i].nodes; k++)
            p->stage[v->groups->group[i].node[k]] = v->piece[i] < 0 ? 0 : best->stage[v->piece[i]];
    settle_losses(p->source, v->loss, p->stage);
    return MEG_OK;
}

meg_status meg_plan_stages(meg_plan *p, meg_error *e, const meg_trial *trial)
{
    p->stage = meg_pool_alloc(p->pool, ((size_t)p->source->nodes + 1) * sizeof(int));
    if (p->options.stages == 1) return MEG_OK;
    view v = {.plan = p,
              .trial = trial,
              .groups = meg_groups_new(p->source, (meg_level)p->options.level)};
    v.loss = meg_losses_of(p->pool, p->source);
    meg_status status = cut_graph(&v, e);
    meg_groups_free(v.groups);
    return status;
}
