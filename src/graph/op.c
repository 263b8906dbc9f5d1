/* What all operators share: see op.h. (The registry itself is ops/registry.c.) */
#include "graph/op.h"

#include <string.h>

meg_box meg_op_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (meg_box_empty(&w->out) || meg_box_empty(&w->sum)) return meg_box_of(0, 0, 0, 0, 0);
    return meg_box_meet(v->op->need(g, v, input, w), g->value[v->in[input]].shape);
}

meg_work meg_op_whole(const meg_graph *g, const meg_node *v)
{
    meg_box one = meg_box_of(1, 1, 1, 1, 1);
    return (meg_work){g->value[v->out[0]].shape, v->op->sum ? v->op->sum(g, v) : one};
}

/* EVAL and REPLAY of most operators are their FORWARD. */
static meg_pass stand_in(const meg_op *op, meg_pass pass)
{
    bool own = op->f32->run[pass] != NULL;
    return !own && (pass == MEG_EVAL || pass == MEG_REPLAY) ? MEG_FORWARD : pass;
}

bool meg_op_has(const meg_op *op, meg_pass pass)
{
    return op->f32->run[stand_in(op, pass)] != NULL;
}

meg_kernel_fn *meg_op_kernel(const meg_op *op, meg_pass pass, meg_dtype real)
{
    const meg_kernels *k = real == MEG_F64 ? op->f64 : op->f32;
    return k->run[stand_in(op, pass)];
}

meg_mask meg_op_reads(const meg_op *op, meg_pass pass)
{
    return op->reads[stand_in(op, pass)];
}

meg_mask meg_op_writes(const meg_op *op, meg_pass pass)
{
    return op->writes[stand_in(op, pass)];
}

/* Masks are the operator's; a node may lack optional inputs (bias). */
static meg_mask present(const meg_node *v, meg_pass pass, meg_mask mask)
{
    for (int i = v->inputs; i < MEG_INPUTS; i++)
        mask &= ~(MEG_BIT(MEG_X + i) | MEG_BIT(MEG_DX + i));
    return v->op->skips ? mask & ~v->op->skips(v, pass) : mask;
}

meg_mask meg_node_reads(const meg_node *v, meg_pass pass)
{
    return present(v, pass, meg_op_reads(v->op, pass));
}

meg_mask meg_node_writes(const meg_node *v, meg_pass pass)
{
    return present(v, pass, meg_op_writes(v->op, pass));
}

const char *meg_pass_name(meg_pass pass)
{
    static const char *const name[MEG_PASSES] = {"fwd", "eval", "replay", "state", "bwd", "wgt"};
    return name[pass];
}
