/* Stations without samples: a replica that got none of a small last batch, or a direction that no
 * micro-batch takes. They are lowered like the others, so that they reduce the same memory under the
 * same tags, and then lose what needs samples:
 *
 *     kernels on samples       ZERO of the sums over samples that they would have written
 *     messages, copies, loads  of samples: gone
 *     reductions, updates      stay
 *
 * Where no micro-batch comes at all, reductions of complete gradients go before all tasks: ranks
 * that update one stage and idle in another would wait for one another at the end.
 */
#include "plan/lower/lowering.h"

#include <stdlib.h>

static bool of_samples(const meg_lower *l, int slot)
{
    if (slot < 0) return false;
    const meg_slot *s = &l->out->slot[slot];
    bool value = s->role == MEG_ROLE_VALUE || s->role == MEG_ROLE_GRADIENT;
    return value && l->entry->sampled[s->value];
}

/* Does the node read or make anything that has samples? */
static bool on_samples(const meg_lower *l, const meg_node *v)
{
    for (int k = 0; k < v->inputs; k++)
        if (l->entry->sampled[v->in[k]]) return true;
    for (int k = 0; k < v->outputs; k++)
        if (l->entry->sampled[v->out[k]]) return true;
    return false;
}

/* Sums over no samples are zero. Running statistics are left as they are. */
static void zero_sums(meg_lower *l, const meg_instr *i)
{
    for (int o = 0; o < MEG_OPERANDS && i->pass != MEG_STATE_PASS; o++) {
        if (i->slot[o] < 0 || !(i->written & MEG_BIT(o))) continue;
        const meg_slot *s = &l->out->slot[i->slot[o]];
        bool value = s->role == MEG_ROLE_VALUE || s->role == MEG_ROLE_GRADIENT;
        if (value && !of_samples(l, i->slot[o])) meg_lower_zero(l, i->slot[o]);
    }
}

static void hollow(meg_lower *l, const meg_instr *i)
{
    bool first = i->pass == MEG_STATE_PASS && l->g->node[i->node].op->state_first;
    if (i->code == MEG_KERNEL && !first && on_samples(l, &l->g->node[i->node])) {
        zero_sums(l, i);
        return;
    }
    for (int o = 0; o < MEG_OPERANDS; o++)
        if (of_samples(l, i->slot[o])) return;
    meg_lower_emit(l, i);
}

static bool runs(const meg_lower *l, meg_block_kind b)
{
    bool once = b == MEG_BLOCK_BEGIN || b == MEG_BLOCK_COUNTED || b >= MEG_BLOCK_TIED;
    return once || l->out->micros > 0;
}

void meg_lower_idle(meg_lower *l)
{
    meg_instrs old[MEG_BLOCKS];
    for (int b = 0; b < MEG_BLOCKS; b++) {
        old[b] = l->list[b];
        l->list[b] = (meg_instrs){0};
    }
    for (int b = 0; b < MEG_BLOCKS; b++)
        for (int i = 0; i < old[b].count; i++) {
            bool complete = old[b].at[i].code == MEG_REDUCE && old[b].at[i].last;
            l->block = runs(l, (meg_block_kind)b) ? (meg_block_kind)b : MEG_BLOCK_COUNTED;
            if (l->block == (meg_block_kind)b || complete) hollow(l, &old[b].at[i]);
        }
    for (int b = 0; b < MEG_BLOCKS; b++)
        free(old[b].at);
}
