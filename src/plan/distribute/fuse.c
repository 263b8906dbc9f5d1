/* Rewriting a graph without changing what it computes.
 *
 *     batchnorm -> relu      becomes   batchnorm relu=1     (likewise add, norm, groupnorm)
 *     flatten -> dense       becomes   dense over (c, d, h, w): a full-extent convolution
 *     batchnorm, gap, ...    becomes   its phases, where the plan asks for them
 *
 * One walk over the nodes; map[] takes the old graph's values to the new one's.
 */
#include "plan/distribute/distribute.h"

#include <stdlib.h>
#include <string.h>

typedef struct rewrite {
    const meg_graph *old;
    meg_graph *new;
    int *map;      /* old value -> new value */
    int *absorbed; /* old node -> relu node that it takes in; -1 */
    meg_phases phases;
    int *origin; /* new node -> old node */
    size_t origin_room;
} rewrite;

/* Where an operator that can rectify its output says so; NULL: it cannot. */
static bool *relu_flag(const meg_node *v)
{
    return v->op->relu_at ? (bool *)((char *)v->attr + v->op->relu_at - 1) : NULL;
}

/* The maker of a relu's input, if it can rectify itself and nobody else reads its value. */
static int absorber(const meg_graph *g, const meg_node *v)
{
    int maker = v->op->rectifier ? g->value[v->in[0]].maker : -1;
    if (maker < 0 || meg_graph_consumers(g, v->in[0]) != 1) return -1;
    const bool *flag = relu_flag(&g->node[maker]);
    return flag && !*flag ? maker : -1;
}

/* The flatten in front of a dense layer, if nobody else reads it, nor the weight, which is to change its
 * shape. */
static const meg_node *flatten_before(const meg_graph *g, const meg_node *v)
{
    int maker = v->op->takes_all ? g->value[v->in[0]].maker : -1;
    if (maker < 0 || !g->node[maker].op->flattens) return NULL;
    if (meg_graph_consumers(g, v->in[1]) != 1) return NULL;
    return meg_graph_consumers(g, v->in[0]) == 1 ? &g->node[maker] : NULL;
}

static bool flatten_vanishes(const meg_graph *g, const meg_node *v)
{
    for (int i = v->id + 1; v->op->flattens && i < g->nodes; i++)
        if (flatten_before(g, &g->node[i]) == v) return true;
    return false;
}

/* A dense layer's weight takes the shape of the input that it now sees whole. */
static void widen_weight(rewrite *r, const meg_node *v, const meg_node *flatten)
{
    const meg_box *x = &r->old->value[flatten->in[0]].shape;
    meg_box *w = &r->new->value[r->map[v->in[1]]].shape;
    for (int a = MEG_C; a < MEG_AXES; a++)
        w->hi[a] = x->hi[a];
}

/* Is the operator the sum of what parts of the pixels give, or has each pixel for itself? */
static bool goes_by_pixels(const meg_graph *g, const meg_node *v)
{
    if (v->op->by_pixels) return true;
    for (int axis = MEG_D; axis < MEG_AXES; axis++)
        if (!v->op->grain || v->op->grain(g, v, axis) != 1) return false;
    return true;
}

/* Has the plan to see the phases? */
static bool expands(const rewrite *r, const meg_node *v)
{
    switch (r->phases) {
    case MEG_FUSED:
        return false;
    case MEG_PHASED_NORMS:
        return v->op->norm_at > 0;
    case MEG_PHASED_PIXELS:
        return !goes_by_pixels(r->old, v);
    default:
        return true;
    }
}

static int add_node(rewrite *r, const meg_node *v)
{
    int in[MEG_INPUTS];
    meg_node like = *v;
    for (int i = 0; i < v->inputs; i++)
        in[i] = r->map[v->in[i]];
    const meg_node *flatten = flatten_before(r->old, v);
    if (flatten) {
        in[0] = r->map[flatten->in[0]];
        widen_weight(r, v, flatten);
    }
    like.attr = meg_pool_alloc(r->new->pool, v->op->attr_bytes);
    if (v->op->attr_bytes) memcpy(like.attr, v->attr, v->op->attr_bytes);
    if (r->absorbed[v->id] >= 0) *relu_flag(&like) = true;
    if (v->op->expand && expands(r, v)) return v->op->expand(r->new, &like, in);
    return meg_graph_add_like(r->new, &like, in);
}

static void walk(rewrite *r)
{
    const meg_graph *g = r->old;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind != MEG_MADE) r->map[i] = meg_graph_add_leaf_like(r->new, &g->value[i]);
    for (int i = 0; i < g->nodes; i++)
        r->absorbed[i] = -1;
    for (int i = 0; i < g->nodes; i++) {
        int maker = absorber(g, &g->node[i]);
        if (maker >= 0) r->absorbed[maker] = i;
    }
    for (int i = 0; i < g->nodes && r->new->error.status == MEG_OK; i++) {
        const meg_node *v = &g->node[i];
        int maker = absorber(g, v), first = r->new->nodes;
        if (maker >= 0) {
            r->map[v->out[0]] = r->map[g->node[maker].out[0]];
            continue;
        }
        if (flatten_vanishes(g, v)) continue;
        r->map[v->out[0]] = add_node(r, v);
        r->origin = meg_grow(r->origin, &r->origin_room, (size_t)r->new->nodes + 1, sizeof(int));
        for (int k = first; k < r->new->nodes; k++)
            r->origin[k] = i;
        for (int k = 1; k < v->outputs && first < r->new->nodes; k++)
            r->map[v->out[k]] = r->new->node[first].out[k];
    }
}

meg_status meg_graph_fuse(const meg_graph *g, meg_error *e, meg_phases phases, meg_graph **out,
                          int **origin)
{
    rewrite r = {.old = g, .new = meg_graph_create(g->name), .phases = phases};
    meg_status status = MEG_OK;
    r.map = calloc((size_t)g->values + 1, sizeof *r.map);
    r.absorbed = calloc((size_t)g->nodes + 1, sizeof *r.absorbed);
    if (!r.map || !r.absorbed) abort();
    r.new->batch = g->batch;
    r.new->owner = g->owner;
    walk(&r);
    r.new->losses = g->losses;
    for (int i = 0; i < g->losses; i++)
        r.new->loss[i] = (meg_loss){r.map[g->loss[i].value], g->loss[i].weight};
    r.new->correct = g->correct >= 0 ? r.map[g->correct] : -1;
    r.new->outputs = meg_graph_results(g, r.new->output);
    for (int i = 0; i < r.new->outputs; i++)
        r.new->output[i] = r.map[r.new->output[i]];
    if (r.new->error.status != MEG_OK) {
        *e = r.new->error;
        status = e->status;
        meg_graph_destroy(r.new);
    } else *out = r.new;
    if (origin && status == MEG_OK) *origin = r.origin;
    else free(r.origin);
    free(r.map);
    free(r.absorbed);
    return status;
}
