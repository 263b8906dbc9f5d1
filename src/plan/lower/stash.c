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

#include <string.h>

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

int meg_lower_input(const meg_lower *l, int value)
{
    const meg_graph *g = l->g;
    int maker = g->value[value].maker, leaf = value;
    if (!l->plan->options.input_grads) return -1;
    if (maker >= 0 && meg_is_move(&g->node[maker])) { /* a reader's, as it came to this segment */
        int feed = g->value[g->node[maker].in[0]].maker;
        if (feed >= 0 && meg_is_feed(&g->node[feed])) leaf = g->node[feed].in[0];
    }
    const meg_value *x = &g->value[leaf];
    return x->kind == MEG_INPUT && x->dtype != MEG_I32 ? leaf : -1;
}

/* A gradient flows where a parameter comes in, or an input that is asked for, and matters where a loss goes out.
 * Some inputs get none at all: what a loss compares with. */
static void find_gradients(meg_lower *l)
{
    const meg_graph *g = l->g;
    bool *wanted = meg_pool_alloc(l->pool, (size_t)g->values + 1);
    for (int i = 0; i < g->values; i++)
        l->grad[i] = g->value[i].kind == MEG_PARAMETER || meg_lower_input(l, i) >= 0;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        bool any = false;
        for (int k = 0; k < v->inputs; k++)
            any = any || l->grad[v->in[k]];
        for (int k = 0; k < v->outputs; k++)
            l->grad[v->out[k]] = (any && !v->op->no_gradient) || meg_lower_input(l, v->out[k]) >= 0;
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

meg_mask meg_lower_back_reads(const meg_lower *l, const meg_node *v)
{
    meg_mask reads = 0;
    for (int p = 0; p < 2; p++)
        if (meg_lower_wants(l, v, backward_passes[p]))
            reads |= meg_node_reads(v, backward_passes[p]);
    return reads;
}

static int rerun_of(const meg_lower *l, int node)
{
    return l->out->again && node >= 0 ? l->out->again[node] : -1;
}

/* Backward reads the value at this node, or makes the node's own again from it. */
static void need(meg_lower *l, int value, int node)
{
    l->keep[value] = true;
    if (rerun_of(l, l->g->value[value].maker) != rerun_of(l, node)) l->crosses[value] = true;
}

static void find_needs(meg_lower *l)
{
    for (int i = 0; i < l->g->nodes; i++) {
        const meg_node *v = &l->g->node[i];
        meg_mask reads = l->mine[i] ? meg_lower_back_reads(l, v) : 0;
        for (int k = 0; k < v->inputs; k++)
            if (reads & MEG_BIT(MEG_X + k)) need(l, v->in[k], i);
        for (int k = 0; k < v->outputs; k++)
            if (reads & MEG_BIT(MEG_Y + k)) need(l, v->out[k], i);
        for (int p = 0; p < 2 && l->mine[i]; p++)
            if (meg_lower_wants(l, v, backward_passes[p])) count_owed(l, v, backward_passes[p]);
    }
}

/* Cheap, and made of what is there. */
static bool can_replay(const meg_lower *l, const meg_node *v)
{
    if (!v->op->cheap || !meg_op_has(v->op, MEG_REPLAY) || v->outputs != 1) return false;
    meg_mask reads = meg_node_reads(v, MEG_REPLAY);
    for (int k = 0; k < v->inputs; k++) {
        meg_kind kind = l->g->value[v->in[k]].kind;
        if (!(reads & MEG_BIT(MEG_X + k)) || meg_kind_lasts(kind)) continue;
        if (!l->keep[v->in[k]] && !l->remade[v->in[k]]) return false;
    }
    return true;
}

static void replay_cheap(meg_lower *l)
{
    for (int i = 0; i < l->g->nodes; i++) {
        int y = l->g->node[i].out[0];
        bool there = l->keep[y] || l->remade[y];
        if (!l->mine[i] || !there || (l->keep[y] && rerun_of(l, i) >= 0)) continue;
        if (!can_replay(l, &l->g->node[i])) continue;
        l->keep[y] = l->remade[y] = false;
        l->replay[y] = true;
    }
}

/* ---- reruns ---- */

/* What moves or is summed over ranks would need them once more: recomputing never communicates. */
bool meg_lower_remakes(const meg_lower *l, const meg_node *v)
{
    return !meg_is_move(v) && v->outputs == 1 && meg_op_has(v->op, MEG_REPLAY) &&
           !v->op->per_step && !meg_entry_partial(l->entry, v->out[0]);
}

/* Of a rerun only what crosses into others stays, and what cannot be made again; what makes the rest is
 * needed as well. What backward reads is made when it comes to the rerun, what only lies on the way to it
 * goes again. */
static void drop_reruns(meg_lower *l)
{
    bool *read = meg_pool_alloc(l->pool, (size_t)l->g->values + 1);
    memcpy(read, l->keep, (size_t)l->g->values);
    for (int i = l->g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &l->g->node[i];
        int y = v->out[0];
        bool stays = !l->mine[i] || rerun_of(l, i) < 0 || l->crosses[y] || !meg_lower_remakes(l, v);
        if (stays || !l->keep[y]) continue;
        meg_mask reads = meg_node_reads(v, MEG_REPLAY);
        l->keep[y] = false;
        l->remade[y] = read[y];
        l->replay[y] = !read[y];
        for (int k = 0; k < v->inputs; k++)
            if (reads & MEG_BIT(MEG_X + k)) need(l, v->in[k], i);
    }
}

void meg_lower_stash(meg_lower *l)
{
    find_gradients(l);
    find_needs(l);
    if (l->plan->options.recompute == MEG_RECOMPUTE_NONE) return;
    if (l->out->again) drop_reruns(l);
    replay_cheap(l);
}
