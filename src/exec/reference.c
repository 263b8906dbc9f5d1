/* A graph by its definition: see reference.h. */
#include "exec/reference.h"

#include "exec/start.h"

#include <stdlib.h>

static void *room(meg_box box, meg_dtype type)
{
    void *at = calloc(1, (size_t)(meg_box_size(&box) * meg_dtype_bytes(type)) + 1);
    if (!at) abort();
    return at;
}

static void start(const meg_value *v, uint64_t seed, float *to)
{
    enum {
        RUN = 1024
    };
    double run[RUN];
    int64_t count = meg_box_size(&v->shape);
    for (int64_t i = 0; i < count; i += RUN) {
        int64_t length = count - i < RUN ? count - i : RUN;
        meg_start_read(v, seed, i, length, run);
        for (int64_t k = 0; k < length; k++)
            to[i + k] = (float)run[k];
    }
}

meg_reference *meg_reference_new(const meg_graph *g, uint64_t seed)
{
    meg_reference *r = calloc(1, sizeof *r);
    if (!r) abort();
    r->graph = g;
    r->data = calloc((size_t)g->values + 1, sizeof *r->data);
    if (!r->data) abort();
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        r->data[i] = room(v->shape, v->dtype);
        if (meg_kind_lasts(v->kind)) start(v, seed, r->data[i]);
    }
    return r;
}

void meg_reference_free(meg_reference *r)
{
    if (!r) return;
    for (int i = 0; i < r->graph->values; i++)
        free(r->data[i]);
    free(r->data);
    free(r);
}

static void call(const meg_call *all, meg_pass pass)
{
    meg_call c = *all;
    meg_mask used = meg_node_reads(c.node, pass) | meg_node_writes(c.node, pass);
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (!(used & MEG_BIT(i))) c.t[i].data = NULL;
    meg_op_kernel(c.node->op, pass, MEG_F32)(&c);
}

/* Operands are numbered as in graph/op.h; aux is made for the call. */
static void run_node(const meg_reference *r, const meg_node *v, meg_pass pass)
{
    meg_call c = {.graph = r->graph, .node = v, .moment = {.seed = 1, .step = 1}};
    c.work = meg_op_whole(r->graph, v);
    for (int i = 0; i < v->inputs; i++)
        c.t[MEG_X + i] = (meg_array){r->graph->value[v->in[i]].shape, r->data[v->in[i]]};
    for (int i = 0; i < v->outputs; i++)
        c.t[MEG_Y + i] = (meg_array){r->graph->value[v->out[i]].shape, r->data[v->out[i]]};
    for (int i = 0; i < v->op->auxes; i++) {
        meg_box box;
        meg_dtype type;
        v->op->aux(r->graph, v, &c.work, i, &box, &type);
        c.t[MEG_AUX + i] = (meg_array){box, room(box, type)};
    }
    bool states = pass == MEG_FORWARD && meg_op_has(v->op, MEG_STATE_PASS);
    if (states && v->op->state_first) call(&c, MEG_STATE_PASS);
    call(&c, pass);
    if (states && !v->op->state_first) call(&c, MEG_STATE_PASS);
    for (int i = 0; i < MEG_AUXES; i++)
        free(c.t[MEG_AUX + i].data);
}

void meg_reference_run(meg_reference *r, meg_pass pass)
{
    for (int i = 0; i < r->graph->nodes; i++) {
        if (r->watch) r->watch(r->context, i, r->graph->nodes);
        run_node(r, &r->graph->node[i], pass);
    }
}
