/* Gradients of values, as contributions come in.
 * Contributions to a value's gradient are collected as slots and added only when the value's maker
 * needs them (some kernels take two). One slot may hold several contributions: the inputs of an
 * addition share its gradient. It is written over only by the last who holds it.
 */
#include "plan/lower/lowering.h"

void meg_lower_contribute(meg_lower *l, int value, int slot, const meg_node *from)
{
    meg_contributions *p = &l->parts[value];
    if (!l->grad[value]) return;
    const meg_slot *s = &l->out->slot[slot];
    if (s->format != l->format[value]) {
        int64_t bytes = 0;
        if (meg_format_block(l->format[value]) == 0) bytes = l->out->slot[l->home[value]].bytes;
        slot = meg_lower_copy(l, slot, l->format[value], bytes, from);
    }
    l->holders[slot]++;
    p->slot[p->count++] = slot;
}

/* A rank that makes a copy which nobody reads (other segments took theirs elsewhere) has no gradient of
 * it, but takes part in the sums that follow: it adds zeros. */
void meg_lower_some(meg_lower *l, int value)
{
    if (l->parts[value].count > 0) return;
    meg_slot s = {.role = MEG_ROLE_GRADIENT,
                  .value = value,
                  .box = l->out->box[value],
                  .dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype),
                  .format = l->format[value],
                  .region = MEG_FRAME};
    int slot = meg_lower_slot(l, s);
    meg_lower_zero(l, slot);
    l->holders[slot]++;
    l->parts[value].slot[l->parts[value].count++] = slot;
}

static bool covers(const meg_lower *l, int value, int slot)
{
    return meg_box_equal(&l->out->slot[slot].box, &l->out->box[value]);
}

static void swap(meg_contributions *p, int i, int k)
{
    int slot = p->slot[i];
    p->slot[i] = p->slot[k];
    p->slot[k] = slot;
}

/* The first contribution covers all that the rank has of the value, if it has to be made so. */
static void widen_first(meg_lower *l, int value)
{
    meg_contributions *p = &l->parts[value];
    for (int i = 0; i < p->count; i++)
        if (covers(l, value, p->slot[i])) {
            swap(p, 0, i);
            return;
        }
    if (p->count == 0) return;
    int slot = p->slot[0];
    l->holders[slot]--;
    p->slot[0] = meg_lower_cut(l, slot, &l->out->box[value], l->out->slot[slot].format);
    l->holders[p->slot[0]]++;
}

/* The next to be added: what does not cover the whole goes first; 0: none. */
static int next_part(const meg_lower *l, int value, int most)
{
    const meg_contributions *p = &l->parts[value];
    for (int i = 1; i < p->count; i++)
        if (!covers(l, value, p->slot[i])) return i;
    return p->count > most ? 1 : 0;
}

/* Adds contributions until `most` are left, in order. */
void meg_lower_gather(meg_lower *l, int value, int most)
{
    meg_contributions *p = &l->parts[value];
    widen_first(l, value);
    for (int k = next_part(l, value, most); k; k = next_part(l, value, most)) {
        int a = p->slot[0], b = p->slot[k];
        bool over_b = l->holders[a] != 1 && l->holders[b] == 1 && covers(l, value, b);
        int into = l->holders[a] == 1 ? a : over_b ? b : -1;
        int sum = over_b ? meg_lower_add(l, b, b, a) : meg_lower_add(l, into, a, b);
        l->holders[a]--;
        l->holders[b]--;
        l->holders[sum]++;
        p->slot[0] = sum;
        p->count--;
        for (int i = k; i < p->count; i++)
            p->slot[i] = p->slot[i + 1];
    }
}

/* A copy that lasts to the end of the step, of all micro-batches. What other ranks have of the same input, be it a
 * halo or a copy, has a gradient, too: all of them are shares of one sum, which the caller gets (train/caller). */
void meg_lower_keep_input(meg_lower *l, int value)
{
    meg_contributions *p = &l->parts[value];
    int leaf = meg_lower_input(l, value);
    if (leaf < 0 || l->owed[value] > 0 || p->count == 0) return;
    meg_lower_gather(l, value, 1);
    meg_slot s = {.role = MEG_ROLE_INPUT_GRADIENT, .value = value, .index = leaf};
    s.box = l->out->box[value];
    s.dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    s.per_micro = meg_format_bytes(MEG_FORMAT_PLAIN, &s.box, s.dtype);
    meg_lower_fill(l, meg_lower_step_slot(l, s), p->slot[0]);
    l->holders[p->slot[0]]--;
    p->count = 0;
}
