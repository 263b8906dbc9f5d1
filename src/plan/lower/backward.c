/* The blocks backward and weights: nodes in reverse, each first its weights' gradients, then its
 * inputs' (which may overwrite the gradient that came in). Where the schedule wants weight gradients
 * apart, they go to a block of their own, and what they read stays until then.
 */
#include "plan/lower/lowering.h"

#include <assert.h>

/* ---- nodes ---- */

/* May DX0 (and those that equal it) lie where the incoming gradient did? */
static bool in_place(const meg_lower *l, const meg_node *v, const meg_spec *s, int dy)
{
    const meg_slot *t = &l->out->slot[dy];
    meg_box box = meg_lower_box(l, v, s, MEG_DX);
    return s->in_place & MEG_BIT(MEG_DX) && l->holders[dy] == 0 && t->region == MEG_FRAME &&
           t->format == s->format[MEG_DX] && meg_box_equal(&t->box, &box);
}

/* Held memory of a weight's gradient, where the kernel may write straight to it; else -1. */
static int held_sum(meg_lower *l, int value, meg_format format, int64_t bytes)
{
    if (!meg_lower_direct(l, value)) return -1;
    int slot = meg_lower_gradient(l, value);
    const meg_slot *t = &l->out->slot[slot];
    bool fits = t->format == format && (bytes == 0 || bytes == t->bytes);
    return fits ? slot : -1;
}

/* A sum over samples is no sample, even if the micro-batch has only one: a replica without any has
 * the sum, zero, and not the sample. So the two never share a slot. */
static bool alike(const meg_lower *l, int a, int b)
{
    return l->entry->sampled[a] == l->entry->sampled[b];
}

static void gradients(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s)
{
    meg_mask writes = meg_node_writes(v, i->pass);
    int shared = -1;
    for (int k = 0; k < v->inputs; k++) {
        int o = MEG_DX + k;
        if (!(writes & MEG_BIT(o))) continue;
        bool like = alike(l, v->in[k], v->out[0]), equal = like && s->shared & MEG_BIT(o);
        int slot = equal ? shared : -1;
        if (slot < 0 && like && (k == 0 || equal) && in_place(l, v, s, i->slot[MEG_DY]))
            slot = i->slot[MEG_DY];
        if (slot < 0 && !equal) slot = held_sum(l, v->in[k], s->format[o], s->bytes[o]);
        if (slot < 0) slot = meg_lower_write(l, v, o, s);
        if (equal) shared = slot;
        l->out->slot[slot].value = v->in[k];
        i->slot[o] = slot;
    }
    i->written |= writes;
}

/* A gradient comes in its value's format and box; the kernel may want others. */
static int wanted(meg_lower *l, int slot, const meg_spec *s, const meg_node *v)
{
    if (slot < 0) return slot;
    meg_box box = meg_lower_box(l, v, s, MEG_DY);
    if (s->exact & MEG_BIT(MEG_DY) && !meg_box_equal(&box, &l->out->slot[slot].box))
        return meg_lower_cut(l, slot, &box, s->format[MEG_DY]);
    bool as_is = l->out->slot[slot].format == s->format[MEG_DY];
    return as_is ? slot : meg_lower_copy(l, slot, s->format[MEG_DY], 0, v);
}

/* Does this pass go to the block of weight gradients? Not if it makes others as well. */
static bool apart(const meg_lower *l, meg_pass pass)
{
    return l->entry->timetable->split && pass == MEG_WEIGHT;
}

static void backward_pass(meg_lower *l, const meg_node *v, meg_pass pass, const meg_spec *s,
                          const int dy[2])
{
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, pass);
    meg_lower_reads(l, &i, v, s);
    i.slot[MEG_DY] = wanted(l, dy[0], s, v);
    i.slot[MEG_DY + 1] = wanted(l, dy[1], s, v);
    gradients(l, &i, v, s);
    meg_lower_scratch(l, &i, s);
    if (apart(l, pass)) l->block = MEG_BLOCK_WEIGHTS; /* what it reads is made before */
    meg_lower_emit(l, &i);
    for (int k = 0; k < v->inputs; k++) {
        if (i.slot[MEG_DX + k] < 0) continue;
        l->owed[v->in[k]]--;
        meg_lower_contribute(l, v->in[k], i.slot[MEG_DX + k], v);
    }
    l->block = MEG_BLOCK_BACKWARD;
}

/* The halo's gradient goes to its makers; that of what others had of this value comes. */
static void take_coming(meg_lower *l, const meg_node *v)
{
    for (int o = 0; o < v->outputs; o++) {
        int x = v->out[o];
        if (l->halo[x] >= 0) meg_lower_send_back(l, l->halo[x]);
        meg_lower_take_back(l, x);
    }
}

/* The gradient of a value that was summed over ranks is summed over them, too. */
static void share(meg_lower *l, int value)
{
    int loss = 0;
    for (int i = 0; i < l->g->losses; i++)
        loss += l->g->loss[i].value == value;
    if (!meg_entry_partial(l->entry, value) || loss) return;
    meg_lower_gather(l, value, 1);
    int slot = l->parts[value].slot[0];
    meg_box part = meg_lower_part(l, value);
    if (l->holders[slot] > 1 || !meg_box_equal(&part, &l->out->slot[slot].box)) {
        l->holders[slot]--;
        slot = l->parts[value].slot[0] = meg_lower_cut(l, slot, &part, l->out->slot[slot].format);
        l->holders[slot]++;
    }
    meg_team team = meg_lower_shares(l, value, false);
    int tag = meg_tag_of_value(l->entry, value, MEG_TAG_SUM_BACK + l->out->direction);
    meg_instr r = meg_lower_reduce(l, slot, &team, tag);
    meg_lower_emit(l, &r);
}

static void backward_node(meg_lower *l, const meg_node *v)
{
    static const meg_pass order[] = {MEG_WEIGHT, MEG_BACKWARD};
    meg_spec s[2];
    meg_contributions *p = &l->parts[v->out[0]];
    bool runs[2], two = true;
    take_coming(l, v);
    meg_lower_some(l, v->out[0]);
    share(l, v->out[0]);
    for (int i = 0; i < 2; i++) {
        runs[i] = meg_lower_wants(l, v, order[i]);
        if (!runs[i]) continue;
        meg_lower_describe(l, v, order[i], &s[i]);
        two = two && s[i].second_dy;
    }
    if (!runs[0] && !runs[1]) return;
    if (!meg_entry_partial(l->entry, v->out[0])) meg_lower_gather(l, v->out[0], two ? 2 : 1);
    int dy[2] = {p->slot[0], p->count > 1 ? p->slot[1] : -1};
    for (int i = 0; i < p->count && !(runs[0] && apart(l, MEG_WEIGHT)); i++)
        l->holders[p->slot[i]]--; /* else it is read once more, later */
    p->count = 0;
    for (int i = 0; i < 2; i++)
        if (runs[i]) backward_pass(l, v, order[i], &s[i], dy);
    for (int k = 0; k < v->inputs; k++) {
        meg_lower_settle(l, v->in[k]);
        meg_lower_keep_input(l, v->in[k]);
    }
}

void meg_lower_backward(meg_lower *l)
{
    const meg_graph *g = l->g;
    l->block = MEG_BLOCK_BACKWARD;
    l->duplicates = 0;
    for (int i = 0; i < g->values; i++) {
        bool gone = g->value[i].kind == MEG_MADE && !l->keep[i] &&
                    !(l->home[i] >= 0 && l->out->slot[l->home[i]].region == MEG_STEP);
        if (gone) l->home[i] = -1;
    }
    meg_lower_receive_back(l);
    for (int i = g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &g->node[i];
        if (!l->mine[i]) continue;
        meg_lower_ahead(l, i, true);
        if (l->active[i]) meg_lower_run_again(l, i);
        if (!meg_is_move(v) && l->active[i]) backward_node(l, v);
        if (meg_is_move(v) && l->moved[v->out[0]] >= 0) meg_lower_send_back(l, l->moved[v->out[0]]);
    }
    meg_lower_finish(l);
}
