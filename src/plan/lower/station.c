/* What a station makes and holds of every value, and which ranks hold the same of a weight. */
#include "plan/lower/lowering.h"

#include <stdlib.h>

/* What a node's part reads of a weight. Terms outside a sum (a bias) are its first share's, but all
 * hold them, so that ranks with the same outputs have the same of all weights. A rank without samples
 * must hold the same weights as the others of its channels: the last replica, which has samples,
 * decides. */
static meg_box weight_need(const meg_entry *e, const meg_node *v, int value, int position)
{
    const meg_mesh *mesh = meg_entry_mesh(e, 0, e->segment_of[v->id]);
    int inner = mesh->size / mesh->dim[MEG_N];
    position = (mesh->dim[MEG_N] - 1) * inner + position % inner;
    meg_box need = meg_entry_need(e, v, value, position);
    if (!meg_box_empty(&need)) return need;
    meg_work w = {meg_entry_work(e, v, position).out, meg_op_whole(e->graph, v).sum};
    for (int k = 0; k < v->inputs; k++)
        if (v->in[k] == value) need = meg_box_hull(need, meg_op_need(e->graph, v, k, &w));
    return need;
}

/* What every rank reads of a weight; empty: nothing. */
static void weight_boxes(const meg_entry *e, int value, meg_box box[])
{
    const meg_box *shape = &e->graph->value[value].shape;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        const meg_node *v = &e->graph->node[e->reader[i]];
        for (int d = 0; d < e->timetable->directions; d++) {
            const meg_mesh *mesh = meg_entry_mesh(e, d, e->segment_of[v->id]);
            for (int k = 0; k < mesh->size; k++) {
                meg_box need = e->whole ? *shape : weight_need(e, v, value, k);
                box[mesh->rank[k]] = meg_box_hull(box[mesh->rank[k]], need);
            }
        }
    }
}

/* Boxes that meet must be equal, since gradients are summed as they lie; else all have the whole. Most
 * ranks have one of a few boxes: each is compared with those that differ. */
static void make_alike(const meg_box *shape, meg_box box[], int ranks)
{
    int *first = calloc((size_t)ranks + 1, sizeof *first), kinds = 0;
    bool alike = true;
    if (!first) abort();
    for (int i = 0; i < ranks && alike; i++) {
        bool known = meg_box_empty(&box[i]);
        for (int k = 0; k < kinds && alike && !known; k++) {
            meg_box both = meg_box_meet(box[i], box[first[k]]);
            known = meg_box_equal(&box[i], &box[first[k]]);
            alike = known || meg_box_empty(&both);
        }
        if (!known) first[kinds++] = i;
    }
    for (int i = 0; i < ranks && !alike; i++)
        if (!meg_box_empty(&box[i])) box[i] = *shape;
    free(first);
}

int meg_lower_rank(const meg_lower *l, int segment)
{
    return meg_entry_mesh(l->entry, l->out->direction, segment)->rank[l->out->position[segment]];
}

/* The model's rank among those that read the weight as this rank does; -1: this rank does not. */
static int model_rank(const meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        int segment = e->segment_of[e->reader[i]], position = l->out->position[segment];
        if (position >= 0)
            return meg_entry_mesh(e, l->out->direction, segment)
                ->rank[meg_segment_model(e, segment, position)];
    }
    return -1;
}

/* The rank's box of a weight, and the ranks that hold just the same. */
static void share_weight(meg_lower *l, int value)
{
    const meg_plan *p = l->plan;
    int ranks = p->world.ranks, own = l->out->rank, model = model_rank(l, value);
    meg_box *box = calloc((size_t)ranks, sizeof *box);
    meg_team *team = &l->sharers[value];
    if (!box) abort();
    weight_boxes(l->entry, value, box);
    if (!l->entry->whole) make_alike(&l->g->value[value].shape, box, ranks);
    l->odd[value] = model >= 0 && !meg_box_equal(&box[own], &box[model]);
    if (l->odd[value] && l->foreign) own = model;
    l->out->box[value] = box[own];
    for (int r = 0; r < ranks; r++)
        team->count += !meg_box_empty(&box[r]) && meg_box_equal(&box[r], &box[own]);
    team->rank = meg_pool_alloc(p->pool, ((size_t)team->count + 1) * sizeof(int));
    for (int r = 0, k = 0; r < ranks; r++)
        if (!meg_box_empty(&box[r]) && meg_box_equal(&box[r], &box[own])) team->rank[k++] = r;
    free(box);
}

static void input_box(meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    meg_box *box = &l->out->box[value];
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        int v = e->reader[i], position = l->out->position[e->segment_of[v]];
        if (l->mine[v])
            *box = meg_box_hull(*box, meg_entry_need(e, &e->graph->node[v], value, position));
    }
}

void meg_lower_parts(meg_lower *l)
{
    meg_station *t = l->out;
    const meg_entry *e = l->entry;
    const meg_graph *g = l->g;
    t->work = meg_pool_alloc(l->plan->pool, ((size_t)g->nodes + 1) * sizeof *t->work);
    t->box = meg_pool_alloc(l->plan->pool, ((size_t)g->values + 1) * sizeof *t->box);
    l->odd = meg_pool_alloc(l->pool, (size_t)g->values + 1);
    l->sharers = meg_pool_alloc(l->pool, ((size_t)g->values + 1) * sizeof *l->sharers);
    for (int i = 0; i < g->nodes; i++) {
        int position = t->position[e->segment_of[i]];
        l->mine[i] = position >= 0;
        if (!l->mine[i]) continue;
        t->work[i] = meg_entry_work(e, &g->node[i], position);
        for (int k = 0; k < g->node[i].outputs; k++)
            t->box[g->node[i].out[k]] = meg_entry_held(e, g->node[i].out[k], position);
    }
    for (int i = 0; i < g->values; i++) {
        meg_kind kind = g->value[i].kind;
        if (meg_kind_lasts(kind)) share_weight(l, i);
        else if (kind != MEG_MADE) input_box(l, i);
    }
}
