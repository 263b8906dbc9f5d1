/* Moves: nodes that stand where a value goes from one segment to another. They compute nothing; the
 * lowering makes messages of them (lower/messages.c). So every value is read in the segment that makes it,
 * and a value that several segments read has a place in each.
 *
 * With feed=reader inputs and labels are of a segment, too, that of the ranks which read data: a node "feed" makes
 * them, and they move to whoever reads them, like all others.
 */
#include "ops/common/shape.h"
#include "plan/distribute/distribute.h"

#include <stdlib.h>

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    (void)e;
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    out[0].dtype = g->value[v->in[0]].dtype;
    return MEG_OK;
}

static const meg_kernels none = {{NULL}};

static const meg_op op_move = {
    .name = "move",
    .doc = "from one segment to another",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_need_same,
    .f32 = &none,
    .f64 = &none,
};

static const meg_op op_feed = {
    .name = "feed",
    .doc = "an input or labels, as the reader of a replica has them",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_need_same,
    .no_gradient = true,
    .f32 = &none,
    .f64 = &none,
};

bool meg_is_move(const meg_node *v)
{
    return v->op == &op_move;
}

bool meg_is_feed(const meg_node *v)
{
    return v->op == &op_feed;
}

typedef struct rewrite {
    const meg_graph *old;
    meg_graph *new;
    const int *from; /* old node -> segment */
    int *map;        /* old value -> new value */
    int segments, feeder;
    int *fed; /* old value -> new value: an input or labels in the feeder's segment; 0: none yet */
    int *moved;   /* old value * segments + segment -> new value; 0: none yet */
    int *segment; /* new node -> segment */
    size_t room;
} rewrite;

static void place(rewrite *r, int segment)
{
    r->segment = meg_grow(r->segment, &r->room, (size_t)r->new->nodes + 1, sizeof(int));
    r->segment[r->new->nodes - 1] = segment;
}

/* An input or labels, as the reader hands them out. */
static int feed(rewrite *r, int value)
{
    if (r->fed[value]) return r->fed[value];
    char *name = meg_pool_text(r->new->pool, "%s>", r->old->value[value].name);
    meg_node like = {.name = name, .op = &op_feed, .inputs = 1, .outputs = 1};
    r->fed[value] = meg_graph_add_like(r->new, &like, &r->map[value]);
    place(r, r->feeder);
    return r->fed[value];
}

/* The value as nodes of a segment read it. */
static int value_in(rewrite *r, int value, int segment)
{
    const meg_value *x = &r->old->value[value];
    bool fed = r->feeder && (x->kind == MEG_INPUT || x->kind == MEG_LABEL) &&
               !meg_graph_awaits(r->old, value); /* comes from the caller, to all ranks */
    if (!fed && (x->maker < 0 || r->from[x->maker] == segment)) return r->map[value];
    int *moved = &r->moved[value * r->segments + segment];
    if (*moved) return *moved;
    int in = fed ? feed(r, value) : r->map[value];
    char *name = meg_pool_text(r->new->pool, "%s>%d", x->name, segment);
    meg_node like = {.name = name, .op = &op_move, .inputs = 1, .outputs = 1};
    *moved = meg_graph_add_like(r->new, &like, &in);
    place(r, segment);
    return *moved;
}

static void walk(rewrite *r)
{
    const meg_graph *g = r->old;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind != MEG_MADE) r->map[i] = meg_graph_add_leaf_like(r->new, &g->value[i]);
    for (int i = 0; i < g->nodes && r->new->error.status == MEG_OK; i++) {
        const meg_node *v = &g->node[i];
        int in[MEG_INPUTS];
        for (int k = 0; k < v->inputs; k++)
            in[k] = value_in(r, v->in[k], r->from[i]);
        meg_graph_add_like(r->new, v, in);
        if (r->new->error.status != MEG_OK) return;
        place(r, r->from[i]);
        for (int k = 0; k < v->outputs; k++)
            r->map[v->out[k]] = r->new->node[r->new->nodes - 1].out[k];
    }
}

meg_status meg_graph_moves(const meg_graph *g, meg_error *e, meg_parting parting, meg_graph **out,
                           int **segment)
{
    rewrite r = {.old = g,
                 .new = meg_graph_create(g->name),
                 .from = *segment,
                 .segments = parting.segments,
                 .feeder = parting.feeder};
    size_t values = (size_t)g->values + 1;
    r.map = calloc(values, sizeof *r.map);
    r.fed = calloc(values, sizeof *r.fed);
    r.moved = calloc(values * (size_t)r.segments, sizeof *r.moved);
    if (!r.map || !r.fed || !r.moved) abort();
    r.new->batch = g->batch;
    r.new->owner = g->owner;
    walk(&r);
    r.new->losses = g->losses;
    for (int i = 0; i < g->losses; i++)
        r.new->loss[i] = (meg_loss){r.map[g->loss[i].value], g->loss[i].weight};
    r.new->correct = g->correct >= 0 ? r.map[g->correct] : -1;
    r.new->outputs = g->outputs;
    for (int i = 0; i < g->outputs; i++)
        r.new->output[i] = r.map[g->output[i]];
    free(r.map);
    free(r.fed);
    free(r.moved);
    if (r.new->error.status != MEG_OK) {
        meg_status status = r.new->error.status;
        *e = r.new->error;
        meg_graph_destroy(r.new);
        free(r.segment);
        return status;
    }
    free(*segment);
    *segment = r.segment;
    *out = r.new;
    return MEG_OK;
}
