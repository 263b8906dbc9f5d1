/* Positions: see positions.h. */
#include "plan/classes/positions.h"
#include "base/random.h"
#include "plan/distribute/distribute.h"

static void add(uint64_t *h, int64_t word)
{
    *h = meg_hash_word(*h, (uint64_t)word);
}

/* ---- boxes ---- */

void meg_position_add_box(uint64_t *h, const meg_box *box, const meg_box *whole)
{
    for (int a = 0; a < MEG_AXES; a++) {
        add(h, meg_extent(box, a));
        if (a == MEG_C) add(h, box->lo[a] % MEG_POSITION_BLOCK);
        if (a > MEG_C) add(h, 2 * (box->lo[a] == 0) + (box->hi[a] == whole->hi[a]));
    }
}

/* What is read for some of the output: how the one lies to the other, too, unless all pixels are read, or
 * become one. */
static void add_need(uint64_t *h, const meg_box *need, const meg_box *in, const meg_work *w,
                     const meg_box *out)
{
    meg_position_add_box(h, need, in);
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (meg_extent(need, a) != meg_extent(in, a) && meg_extent(out, a) > 1)
            add(h, meg_extent(in, a) * w->out.lo[a] - meg_extent(out, a) * need->lo[a]);
}

/* ---- positions ---- */

static void add_output(uint64_t *h, const meg_entry *e, int value, int position)
{
    const meg_graph *g = e->graph;
    meg_part part = meg_entry_part(e, value, position);
    meg_box held = meg_entry_held(e, value, position);
    meg_position_add_box(h, &part.work.out, &g->value[value].shape);
    meg_position_add_box(h, &held, &g->value[value].shape);
    for (int a = MEG_C; a < MEG_AXES; a++)
        add(h, part.work.out.lo[a] - held.lo[a]);
}

static void add_node(uint64_t *h, const meg_entry *e, const meg_node *v, int position)
{
    const meg_graph *g = e->graph;
    const meg_box *out = &g->value[v->out[0]].shape;
    meg_work w = meg_entry_work(e, v, position);
    meg_position_add_box(h, &w.out, out);
    for (int a = 0; a < MEG_AXES; a++)
        add(h, meg_extent(&w.sum, a));
    for (int k = 0; k < v->inputs; k++) {
        meg_box need = meg_op_need(g, v, k, &w);
        add_need(h, &need, &g->value[v->in[k]].shape, &w, out);
    }
    for (int k = 0; k < v->outputs; k++)
        add_output(h, e, v->out[k], position);
}

/* Who has the step's first sample begins with the running statistics as they were. */
static bool is_first(const meg_entry *e, int segment, int position)
{
    int inner = e->segment[segment].size / e->segment[segment].dim[MEG_N];
    const int64_t *at = &e->samples[segment][position / inner];
    return at[0] == 0 && at[1] > 0;
}

uint64_t meg_position_sign(const meg_entry *e, int segment, int position)
{
    uint64_t h = meg_hash("position");
    for (int i = 0; i < e->graph->nodes; i++)
        if (e->segment_of[i] == segment) add_node(&h, e, &e->graph->node[i], position);
    return h;
}

static void add_copy(uint64_t *h, const meg_entry *e, int value, int segment, int position)
{
    if (value < 0 || e->segment_of[e->graph->value[value].maker] != segment) return;
    add(h, meg_entry_part(e, value, position).copy == 0);
}

void meg_position_add_firsts(uint64_t *h, const meg_entry *e, int segment, int position)
{
    const meg_graph *g = e->graph;
    bool states = false, first = meg_segment_first(e, segment, position);
    add_copy(h, e, g->correct, segment, position);
    for (int i = 0; i < g->losses; i++)
        add_copy(h, e, g->loss[i].value, segment, position);
    for (int i = 0; i < g->nodes && !states; i++)
        states = e->segment_of[i] == segment && meg_op_has(g->node[i].op, MEG_STATE_PASS) &&
                 !g->node[i].op->state_first;
    if (states) add(h, first ? 1 + is_first(e, segment, position) : 0);
}
