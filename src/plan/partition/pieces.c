/* What pieces need: see pieces.h. The whole network was lowered for one rank and one micro-batch, so
 * formats, working memory, what is kept and what is recomputed are those of the device. Each slot of
 * that program belongs to the piece of the node that makes its value:
 *
 *     held        weights, gradients, optimizer states of its nodes
 *     kept        slots that live from one block to a later one (forward to backward)
 *     temporary   the others, at the piece's largest moment
 *
 * What two pieces share is a flow: it stays in a stage that has both, else it is a message.
 */
#include "plan/partition/pieces.h"

#include <stdlib.h>

typedef struct scale {
    const meg_plan *even, *whole;
    const meg_entry *entry; /* the whole's step */
    const meg_station *t;   /* its only one */
    const int *of;          /* (nodes of the source) */
    meg_piece *piece;
    meg_cut *cut;
    bool split;     /* weight gradients apart: a gradient goes back while much is kept for them */
    int *runs;      /* (instructions) the piece for which each is done */
    int64_t *alive; /* (instructions) what its piece keeps then */
    int64_t *stash; /* (values) bytes that are kept of it for other pieces alone */
} scale;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Of a node of the lowered graph. */
static int piece_of(const scale *x, int node)
{
    return x->of[x->entry->origin[node]];
}

/* What is made again is for the next instruction, what has no node for the one before. */
static int *list_runs(const scale *x)
{
    const meg_station *t = x->t;
    int *runs = meg_pool_alloc(x->whole->pool, ((size_t)t->instrs + 1) * sizeof *runs);
    for (int i = 0; i < t->instrs; i++) {
        int next = i;
        while (next < t->instrs - 1 && t->instr[next].node >= 0 &&
               t->instr[next].pass == MEG_REPLAY)
            next++;
        int node = t->instr[next].node;
        runs[i] = node >= 0 ? piece_of(x, node) : i > 0 ? runs[i - 1] : 0;
    }
    return runs;
}

/* ---- held ---- */

/* What ranks that share a weight have a part of (zero=). */
static int64_t shard_of(const scale *x, const meg_held_slot *h)
{
    int zero = x->even->options.zero;
    bool cut = zero == MEG_ZERO_ALL || (zero == MEG_ZERO_STATES && h->role == MEG_ROLE_STATE);
    int64_t replicas = x->even->replicas;
    return cut ? (h->bytes + replicas - 1) / replicas : h->bytes;
}

/* A weight is held by every piece that reads it: in one stage these are one or neighbours. */
static void weigh_held(scale *x)
{
    const meg_entry *e = x->entry;
    for (int i = 0; i < x->whole->held_slots; i++) {
        const meg_held_slot *h = &x->whole->held[i];
        int before = -1;
        for (int k = e->reader_first[h->value]; k < e->reader_first[h->value + 1]; k++) {
            int piece = piece_of(x, e->reader[k]);
            if (piece == before) continue;
            before = piece;
            x->piece[piece].held += meg_aligned(shard_of(x, h));
            if (h->role == MEG_ROLE_GRADIENT) x->piece[piece].summed += h->bytes;
        }
    }
    x->piece[x->cut->pieces - 1].held += x->whole->bytes[MEG_STEP]; /* labels are with the losses */
}

/* ---- kept ---- */

static int block_of(const meg_station *t, int instr)
{
    int b = 0;
    while (b < MEG_BLOCKS - 1 && instr >= t->block[b].first + t->block[b].count)
        b++;
    return b;
}

static bool lives_on(const meg_station *t, const meg_slot *s)
{
    return block_of(t, s->born) != block_of(t, s->dies);
}

static bool is_framed(const meg_slot *s)
{
    return (s->region == MEG_FRAME || s->region == MEG_TEMPORARY) && s->born >= 0;
}

/* The node that a slot belongs to; -1: none. */
static int node_of(const scale *x, const meg_slot *s)
{
    if (s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH) return s->value;
    return s->value < 0 ? -1 : x->entry->graph->value[s->value].maker;
}

/* Does a pass of backward read this operand of the node? */
static bool reads(const meg_node *v, int operand)
{
    static const meg_pass passes[] = {MEG_WEIGHT, MEG_BACKWARD};
    for (int i = 0; i < 2; i++)
        if (meg_op_has(v->op, passes[i]) && meg_node_reads(v, passes[i]) & MEG_BIT(operand))
            return true;
    return false;
}

/* Does backward of a node of this piece read the value? */
static bool piece_needs(const scale *x, int piece, int value)
{
    const meg_entry *e = x->entry;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        const meg_node *v = &e->graph->node[e->reader[i]];
        if (piece_of(x, v->id) != piece) continue;
        for (int k = 0; k < v->inputs; k++)
            if (v->in[k] == value && reads(v, MEG_X + k)) return true;
    }
    return false;
}

static bool maker_needs(const scale *x, const meg_value *v, int value)
{
    const meg_node *maker = &x->entry->graph->node[v->maker];
    for (int k = 0; k < maker->outputs; k++)
        if (maker->out[k] == value && reads(maker, MEG_Y + k)) return true;
    return false;
}

/* The piece that keeps a slot; -1: it is kept for other pieces alone, as a stash. An input of the network
 * is its first reader's. */
static int keeper_of(const scale *x, const meg_slot *s)
{
    const meg_entry *e = x->entry;
    int node = node_of(x, s);
    if (node < 0) return piece_of(x, e->reader[e->reader_first[s->value]]);
    int piece = piece_of(x, node);
    bool own = s->role != MEG_ROLE_VALUE || piece_needs(x, piece, s->value) ||
               maker_needs(x, &e->graph->value[s->value], s->value);
    return own ? piece : -1;
}

/* Behind forward, and behind backward where the weight gradients are apart; at the piece's own
 * instructions. */
static void weigh_kept(scale *x)
{
    const meg_station *t = x->t;
    for (int i = 0; i < t->slots; i++) {
        const meg_slot *s = &t->slot[i];
        if (!is_framed(s) || !lives_on(t, s) || s->value < 0) continue;
        int64_t bytes = meg_aligned(s->bytes);
        int piece = keeper_of(x, s), born = block_of(t, s->born), dies = block_of(t, s->dies);
        if (piece < 0) {
            x->stash[s->value] += bytes;
            continue;
        }
        if (born <= MEG_BLOCK_FORWARD) x->piece[piece].kept += bytes;
        if (dies > MEG_BLOCK_BACKWARD) x->piece[piece].late += bytes;
        for (int k = s->born; k <= s->dies; k++)
            if (x->runs[k] == piece) x->alive[k] += bytes;
    }
}

/* ---- temporary ---- */

typedef struct span { /* the pieces that touch a slot, and that of its maker */
    int first, last;
} span;

static span *list_spans(const scale *x)
{
    const meg_station *t = x->t;
    span *of = calloc((size_t)t->slots + 1, sizeof *of);
    if (!of) abort();
    for (int i = 0; i < t->slots; i++) {
        int node = node_of(x, &t->slot[i]);
        of[i] = node < 0 ? (span){x->cut->pieces, -1}
                         : (span){piece_of(x, node), piece_of(x, node)};
    }
    for (int i = 0; i < t->instrs; i++)
        for (int o = 0; o < MEG_OPERANDS; o++) {
            int s = t->instr[i].slot[o];
            if (s < 0 || t->instr[i].code == MEG_FREE) continue;
            if (x->runs[i] < of[s].first) of[s].first = x->runs[i];
            if (x->runs[i] > of[s].last) of[s].last = x->runs[i];
        }
    return of;
}

/* While pieces run, where the stage goes on at these sides. Of what a piece shares with one of another
 * stage, gradients travel; values are counted as flows. What only passes by is the others'. */
static void weigh_side(scale *x, int sides, const span of[], int64_t swell[], int64_t temporary[])
{
    const meg_station *t = x->t;
    for (int i = 0; i < t->slots; i++) {
        const meg_slot *s = &t->slot[i];
        if (!is_framed(s) || lives_on(t, s)) continue;
        for (int k = s->born; k <= s->dies; k++) {
            int touches = (of[i].first < x->runs[k] ? MEG_BEFORE : 0) +
                          (of[i].last > x->runs[k] ? MEG_BEHIND : 0);
            if ((touches & sides) == touches) temporary[k] += meg_aligned(s->bytes);
            else if (s->role == MEG_ROLE_GRADIENT && touches != MEG_BEFORE + MEG_BEHIND)
                swell[k] += meg_aligned(s->bytes);
        }
    }
    for (int i = 0; i < t->instrs; i++) {
        meg_piece *p = &x->piece[x->runs[i]];
        p->swell[sides] = larger(p->swell[sides], x->alive[i] + swell[i] - p->kept);
        p->temporary[sides] = larger(p->temporary[sides], temporary[i]);
    }
}

static void weigh_sides(scale *x)
{
    size_t instrs = (size_t)x->t->instrs + 1;
    span *of = list_spans(x);
    for (int sides = 0; sides < MEG_SIDES; sides++) {
        int64_t *swell = calloc(instrs, sizeof *swell),
                *temporary = calloc(instrs, sizeof *temporary);
        if (!swell || !temporary) abort();
        weigh_side(x, sides, of, swell, temporary);
        free(swell);
        free(temporary);
    }
    free(of);
}

/* ---- flows ---- */

static meg_flow flow_of(const scale *x, int value, int from, int to)
{
    const meg_value *v = &x->entry->graph->value[value];
    int64_t bytes = meg_box_size(&v->shape) * meg_dtype_bytes(meg_entry_dtype(x->entry, v->dtype));
    bool needed = piece_needs(x, to, value);
    return (meg_flow){.from = from,
                      .to = to,
                      .value = value,
                      .bytes = bytes,
                      .stash = needed ? x->stash[value] : 0,
                      .sent = meg_aligned(bytes),
                      .arrived = needed ? meg_aligned(bytes) : 0,
                      .returned = x->split ? meg_aligned(bytes) : 0};
}

/* From each maker to each piece that reads its value, once. */
static void list_flows(scale *x)
{
    const meg_entry *e = x->entry;
    const meg_graph *g = e->graph;
    size_t most = (size_t)e->reader_first[g->values] + 1;
    int *seen = meg_pool_alloc(x->whole->pool, ((size_t)x->cut->pieces + 1) * sizeof *seen);
    meg_flow *flow = meg_pool_alloc(x->whole->pool, most * sizeof *flow);
    x->cut->flows = 0;
    for (int v = 0; v < g->values; v++) {
        int from = g->value[v].maker < 0 ? -1 : piece_of(x, g->value[v].maker);
        for (int k = e->reader_first[v]; k < e->reader_first[v + 1] && from >= 0; k++) {
            int to = piece_of(x, e->reader[k]);
            if (to <= from || seen[to] == v + 1) continue;
            seen[to] = v + 1;
            flow[x->cut->flows++] = flow_of(x, v, from, to);
        }
    }
    x->cut->flow = flow;
}

void meg_pieces_weigh(const meg_plan *even, const meg_plan *whole, const int of[],
                      meg_piece piece[], meg_cut *cut)
{
    const meg_entry *entry = &whole->entry[MEG_ENTRY_TRAIN];
    scale x = {.even = even,
               .whole = whole,
               .entry = entry,
               .t = &entry->station[0],
               .of = of,
               .piece = piece,
               .cut = cut};
    weigh_held(&x);
    cut->replicas = even->replicas;
    cut->scratch = (int64_t)MEG_REDUCE_PIECE * MEG_REDUCE_PIECES;
    x.split = entry->timetable->split;
    x.runs = list_runs(&x);
    x.alive = meg_pool_alloc(whole->pool, ((size_t)x.t->instrs + 1) * sizeof *x.alive);
    x.stash = meg_pool_alloc(whole->pool, ((size_t)entry->graph->values + 1) * sizeof *x.stash);
    weigh_kept(&x);
    weigh_sides(&x);
    list_flows(&x);
}
