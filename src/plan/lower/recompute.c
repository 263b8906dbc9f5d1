/* Reruns of blocks that backward runs forward again (recompute=segments): when backward comes to one, and
 * by what a cut into reruns is decided (plan/partition/reruns.h).
 *
 *     forward    a -> b -> c -> d | e -> ...        a's input and d stay
 *     backward   ... e'   REPLAY a b c, what is cheap among them dropped again   d' c' b' a'
 *
 * Within a rerun it is as without: what is cheap is made again where it is read, from what was remade.
 * Kernels take the statistics (batch norm), indices and halos of the first time, so that nothing is
 * summed, sent or added to running statistics twice; random numbers are keyed by element, so that they
 * are the same.
 *
 * Figures are read off the station as it was lowered without reruns: formats, working memory and what is
 * kept are those of the device. Work is flops, and memory traffic at the pace of eight flops a byte, not
 * predicted seconds, which differ from run to run: same words, same program.
 */
#include "graph/groups.h"
#include "plan/lower/lowering.h"

#include <stdlib.h>

/* ---- backward comes to a rerun ---- */

void meg_lower_run_again(meg_lower *l, int node)
{
    const int *again = l->out->again;
    if (!again || again[node] < 0 || l->ran[again[node]]) return;
    int copies = l->duplicates; /* those made on the way would live too long */
    l->ran[again[node]] = true;
    for (int i = 0; i < l->g->nodes; i++)
        if (again[i] == again[node] && l->remade[l->g->node[i].out[0]])
            meg_lower_remake(l, l->g->node[i].out[0]);
    for (int i = 0; i < l->g->nodes; i++)
        if (again[i] == again[node] && l->replay[l->g->node[i].out[0]])
            l->home[l->g->node[i].out[0]] = -1;
    meg_lower_forget(l, copies);
}

/* ---- what blocks need ---- */

static const double FLOPS_PER_BYTE = 8;

enum {
    BLOCKS = 256 /* of a chain; of more, neighbours count as one */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The groups that the station has nodes of, in their order. */
static void find_blocks(const meg_lower *l, meg_weighed *w)
{
    meg_groups *groups = meg_groups_new(l->g, (meg_level)l->plan->options.level);
    int *number = calloc((size_t)groups->count + 1, sizeof *number), count = 0;
    if (!number) abort();
    for (int i = 0; i < l->g->nodes; i++)
        number[groups->of[i]] |= l->mine[i];
    for (int i = 0; i < groups->count; i++)
        number[i] = number[i] ? count++ : -1;
    int blocks = count < BLOCKS ? count : BLOCKS;
    w->block_of = meg_pool_alloc(l->plan->lowered, ((size_t)l->g->nodes + 1) * sizeof(int));
    for (int i = 0; i < l->g->nodes; i++) {
        int64_t at = number[groups->of[i]];
        w->block_of[i] = l->mine[i] ? (int)(at * blocks / count) : -1;
    }
    w->chain.blocks = blocks;
    free(number);
    meg_groups_free(groups);
}

/* The block that needs each value last, be it to make another one again; -1: none. */
static int *find_last(const meg_lower *l, const meg_weighed *w)
{
    int *last = meg_pool_alloc(l->pool, ((size_t)l->g->values + 1) * sizeof *last);
    for (int i = 0; i < l->g->values; i++)
        last[i] = -1;
    for (int i = l->g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &l->g->node[i];
        if (!l->mine[i]) continue;
        meg_mask reads = meg_lower_back_reads(l, v);
        for (int k = 0; k < v->outputs; k++)
            if (reads & MEG_BIT(MEG_Y + k) && last[v->out[k]] < 0) last[v->out[k]] = w->block_of[i];
        if (last[v->out[0]] >= 0 && meg_lower_remakes(l, v)) reads |= meg_node_reads(v, MEG_REPLAY);
        for (int k = 0; k < v->inputs; k++)
            if (reads & MEG_BIT(MEG_X + k))
                last[v->in[k]] = (int)larger(last[v->in[k]], w->block_of[i]);
    }
    return last;
}

static int64_t halo_bytes(const meg_lower *l, int value)
{
    int64_t bytes = 0;
    const meg_exchange *x = l->halo[value] >= 0 ? &l->exchange[l->halo[value]] : NULL;
    meg_dtype type = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    for (int k = 0; x && k < x->receives; k++)
        bytes += meg_box_size(&x->receive[k].box) * meg_dtype_bytes(type);
    return bytes;
}

static meg_chain_value weigh_value(const meg_lower *l, const meg_node *v, int value)
{
    const meg_op *op = v->op;
    meg_dtype type = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    meg_chain_value c = {.bytes = meg_format_bytes(l->format[value], &l->out->box[value], type),
                         .halo = halo_bytes(l, value),
                         .held = l->keep[value],
                         .stays = !meg_lower_remakes(l, v)};
    c.bytes = meg_aligned(c.bytes);
    c.work = FLOPS_PER_BYTE * (double)c.bytes;
    if (op->flops && !meg_is_move(v))
        c.work += op->flops(l->g, v, &l->out->work[v->id], MEG_FORWARD);
    return c;
}

static int by_block(const void *a, const void *b)
{
    const meg_chain_value *x = a, *y = b;
    return x->block - y->block;
}

static void weigh_values(const meg_lower *l, meg_weighed *w)
{
    meg_chain *c = &w->chain;
    const int *last = find_last(l, w);
    c->value = meg_pool_alloc(l->plan->lowered, ((size_t)l->g->values + 1) * sizeof *c->value);
    for (int i = 0; i < l->g->nodes; i++)
        for (int k = 0; l->mine[i] && k < l->g->node[i].outputs; k++) {
            int y = l->g->node[i].out[k];
            if (last[y] < 0) continue;
            meg_chain_value *v = &c->value[c->values++];
            *v = weigh_value(l, &l->g->node[i], y);
            v->block = w->block_of[i];
            v->last = (int)larger(v->block, last[y]);
        }
    qsort(c->value, (size_t)c->values, sizeof *c->value, by_block);
}

/* (instructions + 1) Bytes of a frame that are alive at each, but for what forward leaves to backward;
 * what kernels leave beside values is noted. */
static int64_t *list_alive(const meg_lower *l, meg_weighed *w)
{
    const meg_station *t = l->out;
    int back = t->block[MEG_BLOCK_BACKWARD].first;
    int64_t *alive = meg_pool_alloc(l->pool, ((size_t)t->instrs + 2) * sizeof *alive);
    for (int i = 0; i < t->slots; i++) {
        const meg_slot *s = &t->slot[i];
        bool stash = s->born < back && s->dies >= back;
        if (s->region < MEG_FRAME || s->born < 0) continue;
        if (stash && s->role == MEG_ROLE_AUX)
            w->chain.block[w->block_of[s->value]].fixed += meg_aligned(s->bytes);
        if (stash) continue;
        alive[s->born] += meg_aligned(s->bytes);
        alive[s->dies + 1] -= meg_aligned(s->bytes);
    }
    for (int i = 0; i < t->instrs; i++)
        alive[i + 1] += alive[i];
    return alive;
}

/* Of instructions without a node, forward the last node's block, and back the next one's; so are those
 * that make something again. */
static void weigh_blocks(const meg_lower *l, meg_weighed *w)
{
    const meg_station *t = l->out;
    const meg_block *ahead = &t->block[MEG_BLOCK_FORWARD], *back = &t->block[MEG_BLOCK_BACKWARD];
    const meg_block *late = &t->block[MEG_BLOCK_WEIGHTS];
    meg_chain_block *b = w->chain.block = meg_pool_alloc(l->plan->lowered,
                                                         ((size_t)w->chain.blocks + 1) * sizeof *b);
    const int64_t *alive = list_alive(l, w);
    int at = 0;
    for (int i = ahead->first; i < ahead->first + ahead->count; i++) {
        if (t->instr[i].node >= 0) at = w->block_of[t->instr[i].node];
        b[at].forward = larger(b[at].forward, alive[i]);
    }
    at = 0;
    for (int i = late->first + late->count - 1; i >= back->first; i--) {
        const meg_instr *in = &t->instr[i];
        if (in->node >= 0 && in->pass != MEG_REPLAY) at = w->block_of[in->node];
        b[at].backward = larger(b[at].backward, alive[i]);
        b[at].entry = i > back->first ? alive[i - 1] : 0;
    }
}

meg_weighed meg_lower_weigh(const meg_lower *l)
{
    meg_weighed w = {.chain.frames = l->out->frames};
    w.chain.apart = l->entry->stations > 1 || l->out->frames > 1;
    find_blocks(l, &w);
    weigh_values(l, &w);
    weigh_blocks(l, &w);
    return w;
}
