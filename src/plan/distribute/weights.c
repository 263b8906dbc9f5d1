/* Which part of a weight each rank holds: what its nodes read of it. */
#include "plan/distribute/distribute.h"

#include <stdlib.h>
#include <string.h>

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

/* What every rank of a replica reads of a weight; empty: nothing. Replicas are alike. */
static void weight_boxes(const meg_plan *p, const meg_entry *e, int value, meg_box box[])
{
    const meg_box *shape = &e->graph->value[value].shape;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        const meg_node *v = &e->graph->node[e->reader[i]];
        int segment = e->segment_of[v->id];
        for (int k = 0; k < e->segment[segment].size; k++) {
            meg_box need = e->whole ? *shape : weight_need(e, v, value, k);
            for (int d = 0; d < e->timetable->directions; d++) {
                meg_box *own = &box[meg_entry_mesh(e, d, segment)->rank[k] % p->each];
                *own = meg_box_hull(*own, need);
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

/* Keeps them, each box once: every rank that is lowered asks again. */
static void keep(const meg_plan *p, const meg_box box[], meg_weight_parts *out)
{
    size_t each = (size_t)p->each;
    int *first = calloc(each, sizeof *first), *of = meg_pool_alloc(p->pool, each * sizeof *of);
    int kinds = 0;
    if (!first) abort();
    for (int i = 0; i < p->each; i++) {
        if (meg_box_empty(&box[i])) continue;
        while (of[i] < kinds && !meg_box_equal(&box[first[of[i]]], &box[i]))
            of[i]++;
        if (of[i] == kinds) first[kinds++] = i;
        of[i]++;
    }
    out->box = meg_pool_alloc(p->pool, (size_t)kinds * sizeof *out->box);
    for (int i = 0; i < kinds; i++)
        out->box[i] = box[first[i]];
    out->of = of;
    free(first);
}

void meg_entry_weight(const meg_plan *p, const meg_entry *e, int value, meg_box box[])
{
    meg_weight_parts *known = &e->weight[value];
    for (int i = 0; i < p->each && known->of; i++)
        box[i] = known->of[i] ? known->box[known->of[i] - 1] : (meg_box){{0}, {0}};
    if (known->of) return;
    memset(box, 0, (size_t)p->each * sizeof *box);
    weight_boxes(p, e, value, box);
    if (!e->whole) make_alike(&e->graph->value[value].shape, box, p->each);
    keep(p, box, known);
}
