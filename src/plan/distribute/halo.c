/* Parts and halos: what a rank makes of a value, and what it holds of it. A halo is what its nodes read
 * beyond its part; it comes from those that make it, or the rank makes it itself (wide_halo.c).
 */
#include "plan/distribute/distribute.h"

/* ---- positions ---- */

const meg_mesh *meg_entry_mesh(const meg_entry *e, int direction, int segment)
{
    return e->mesh[direction * e->segments + segment];
}

/* Of a segment's positions with the same channels, the one whose part of everything is the largest: even
 * cuts leave the rest to the last. */
int meg_segment_model(const meg_entry *e, int segment, int position)
{
    const int *dim = meg_entry_mesh(e, 0, segment)->dim;
    int inner = dim[MEG_D] * dim[MEG_H] * dim[MEG_W];
    int channel = position / inner % dim[MEG_C];
    return ((dim[MEG_N] - 1) * dim[MEG_C] + channel) * inner + inner - 1;
}

bool meg_segment_first(const meg_entry *e, int segment, int position)
{
    const int *dim = meg_entry_mesh(e, 0, segment)->dim;
    return position % (dim[MEG_D] * dim[MEG_H] * dim[MEG_W]) == 0;
}

/* ---- parts ---- */

meg_part meg_entry_part(const meg_entry *e, int value, int position)
{
    meg_part part = meg_layout_part(&e->layout[value], position);
    part.work.out = meg_box_meet(part.work.out, e->graph->value[value].shape);
    return part;
}

meg_work meg_entry_work(const meg_entry *e, const meg_node *v, int position)
{
    meg_work work = meg_layout_part(&e->layout[v->out[0]], position).work;
    if (e->made[v->out[0]]) work.out = e->made[v->out[0]][position];
    return work;
}

bool meg_entry_partial(const meg_entry *e, int value)
{
    return e->graph->value[value].maker >= 0 && meg_layout_shares(&e->layout[value]) > 1;
}

/* ---- halos ---- */

meg_box meg_entry_need(const meg_entry *e, const meg_node *v, int value, int position)
{
    meg_box need = {{0}, {0}};
    meg_work w = meg_entry_work(e, v, position);
    for (int k = 0; k < v->inputs; k++)
        if (v->in[k] == value) need = meg_box_hull(need, meg_op_need(e->graph, v, k, &w));
    return need;
}

/* What is made of the value, with what its readers in the segment need. A move makes nothing: it holds
 * what its own readers need. */
meg_box meg_entry_held(const meg_entry *e, int value, int position)
{
    const meg_node *maker = &e->graph->node[e->graph->value[value].maker];
    meg_box box = meg_entry_part(e, value, position).work.out;
    if (e->whole) return box;
    if (e->made[value]) return e->made[value][position];
    if (meg_is_move(maker)) box = (meg_box){{0}, {0}};
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        const meg_node *v = &e->graph->node[e->reader[i]];
        if (e->segment_of[v->id] != e->segment_of[maker->id]) continue;
        box = meg_box_hull(box, meg_entry_need(e, v, value, position));
    }
    return box;
}
