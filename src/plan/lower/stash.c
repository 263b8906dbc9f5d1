/* What forward leaves for backward.
 *
 * A value that backward reads is kept, unless its operator is cheap and everything it is made from
 * is kept anyway: then it is made again where it is needed ("recompute"). In a residual net this
 * halves the activations: of convolution and batch norm, only the convolution's output is kept,
 * and the normalised, rectified input of the next convolution is recomputed from it by one pass
 * over memory, with the statistics of the first time (Chen et al., "Training deep nets with
 * sublinear memory cost", 2016; Bulo et al., "In-place activated batch norm", CVPR 2018).
 */
#include "plan/lower/lowering.h"

static const meg_pass backward_passes[] = {MEG_WEIGHT, MEG_BACKWARD};

/* Does this pass of backward make a gradient that anyone wants? */
bool meg_lower_wants(const meg_lower *l, const meg_node *v, meg_pass pass)
{
    if (!l->active[v->id] || !meg_op_has(v->op, pass)) return false;
    meg_mask writes = meg_node_writes(v, pass);
    for (int k = 0; k < v->inputs; k++)
        if (writes & MEG_BIT(MEG_DX + k) && l->grad[v->in[k]]) return true;
    return false;
}

bool meg_lower_gives(const meg_lower *l, const meg_node *v, int value)
{
    for (int k = 0; k < v->inputs && l->grad[value]; k++) {
        if (v->in[k] != value) continue;
        for (int p = 0; p < 2; p++)
            if (meg_lower_wants(l, v, backward_passes[p]) &&
                meg_node_writes(v, backward_passes[p]) & MEG_BIT(MEG_DX + k))
                return true;
    }
    return false;
}

/* A gradient flows where a parameter comes in, and matters where a loss goes out. Some inputs get
 * none at all: what a loss compares with. */
static void find_gradients(meg_lower *l)
{
    const meg_graph *g = l->g;
    bool *wanted = meg_pool_alloc(l->pool, (size_t)g->values + 1);
    for (int i = 0; i < g->values; i++)
        l->grad[i] = g->value[i].kind == MEG_PARAMETER;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        bool any = false;
        for (int k = 0; k < v->inputs; k++)
            any = any || l->grad[v->in[k]];
        for (int k = 0; k < v->outputs; k++)
            l->grad[v->out[k]] = any && !v->op->no_gradient;
    }
    for (int i = 0; i < g->losses; i++)
        wanted[g->loss[i].value] = true;
    for (int i = g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &g->node[i];
        l->active[i] = l->grad[v->out[0]] && wanted[v->out[0]];
        meg_mask gives = 0;
        for (int p = 0; p < 2; p++)
            if (meg_op_has(v->op, backward_passes[p]))
                gives |= meg_node_writes(v, backward_passes[p]);
        if (meg_is_move(v)) gives = MEG_BIT(MEG_DX);
        for (int k = 0; l->active[i] && k < v->inputs; k++)
            if (gives & MEG_BIT(MEG_DX + k)) wanted[v->in[k]] = true;
    }
}

static void count_owed(meg_lower *l, const meg_node *v, meg_pass pass)
{
    meg_mask writes = meg_node_writes(v, pass);
    for (int k = 0; k < v->inputs; k++)
        if (writes & MEG_BIT(MEG_DX + k)) l->owed[v->in[k]]++;
}

static void find_needs(meg_lower *l)
{
    for (int i = 0; i < l->g->nodes; i++) {
        const meg_node *v = &l->g->node[i];
        for (int p = 0; p < 2 && l->mine[i]; p++) {
            meg_pass pass = backward_passes[p];
            if (!meg_lower_wants(l, v, pass)) continue;
            meg_mask reads = meg_node_reads(v, pass);
            for (int k = 0; k < v->inputs; k++)
                if (reads & MEG_BIT(MEG_X + k)) l->keep[v->in[k]] = true;
            for (int k = 0; k < v->outputs; k++)
                if (reads & MEG_BIT(MEG_Y + k)) l->keep[v->out[k]] = true;
            count_owed(l, v, pass);
        }
    }
}

static bool can_replay(const meg_lower *l, const meg_node *v)
{
    if (!v->op->cheap || !meg_op_has(v->op, MEG_REPLAY) || v->outputs != 1) return false;
    meg_mask reads = meg_node_reads(v, MEG_REPLAY);
    for (int k = 0; k < v->inputs; k++) {
        meg_kind kind = l->g->value[v->in[k]].kind;
        if (!(reads & MEG_BIT(MEG_X + k)) || meg_kind_lasts(kind)) continue;
        if (!l->keep[v->in[k]]) return false;
    }
    return true;
}

void meg_lower_stash(meg_lower *l)
{
    find_gradients(l);
    find_needs(l);
    if (l->plan->options.recompute == 1) return;
    for (int i = 0; i < l->g->nodes; i++) {
        int y = l->g->node[i].out[0];
        if (!l->mine[i] || !l->keep[y] || !can_replay(l, &l->g->node[i])) continue;
        l->keep[y] = false;
        l->replay[y] = true;
    }
}
