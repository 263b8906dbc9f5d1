/* The blocks before backward: begin, labels, forward. Also recomputing, which is forward again.
 *
 *     begin    LOAD scalars, seeds, labels of the whole step; ZERO totals
 *     labels   what depends on labels alone (the losses' denominators): summed over all
 *              micro-batches before the first loss is computed
 *     forward  the rest, in graph order
 */
#include "plan/lower.h"

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int step_slot(meg_lower *l, meg_slot s)
{
    int64_t all = s.per_micro ? s.per_micro * l->out->micro : 0;
    s.region = MEG_STEP;
    s.offset = aligned(l->out->bytes[MEG_STEP]);
    int id = meg_lower_slot(l, s);
    l->out->bytes[MEG_STEP] = s.offset + (all ? all : l->out->slot[id].bytes);
    return id;
}

static int loaded_slot(meg_lower *l, meg_slot s)
{
    meg_instr i = meg_lower_instr(MEG_LOAD, NULL, MEG_FORWARD);
    i.slot[MEG_Y] = step_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    meg_lower_emit(l, &i);
    return i.slot[MEG_Y];
}

static int total_slot(meg_lower *l, int value)
{
    const meg_value *x = &l->g->value[value];
    int id = step_slot(l, (meg_slot){.role = MEG_ROLE_TOTAL, .value = value, .box = x->shape,
                                     .dtype = meg_entry_dtype(l->out, x->dtype)});
    meg_lower_zero(l, id);
    return id;
}

static void load_labels(meg_lower *l)
{
    for (int v = 0; v < l->g->values; v++) {
        const meg_value *x = &l->g->value[v];
        if (x->kind != MEG_LABEL) continue;
        meg_dtype type = meg_entry_dtype(l->out, x->dtype);
        int64_t bytes = meg_box_size(&x->shape) * meg_dtype_bytes(type);
        l->home[v] = loaded_slot(l, (meg_slot){.value = v, .box = x->shape, .dtype = type,
                                               .per_micro = bytes});
    }
}

static void seed_losses(meg_lower *l)
{
    for (int i = 0; i < l->g->losses; i++) {
        int v = l->g->loss[i].value;
        int seed = loaded_slot(l, (meg_slot){.role = MEG_ROLE_SEED, .value = v, .index = i,
                                             .box = l->g->value[v].shape,
                                             .dtype = l->out->real});
        l->parts[v].slot[l->parts[v].count++] = seed;
        l->holders[seed] = 2; /* the seed itself holds it too: never written over */
    }
}

void meg_lower_begin(meg_lower *l)
{
    const meg_graph *g = l->g;
    l->block = MEG_BLOCK_BEGIN;
    l->scalars = -1;
    if (l->out->train) {
        l->scalars = loaded_slot(l, (meg_slot){.role = MEG_ROLE_SCALARS, .value = -1,
                                               .box = meg_box_of(1, 4, 1, 1, 1),
                                               .dtype = MEG_F64});
        seed_losses(l);
    }
    load_labels(l);
    for (int i = 0; i < g->losses; i++)
        l->out->loss[i] = total_slot(l, g->loss[i].value);
    l->out->correct = g->correct >= 0 ? total_slot(l, g->correct) : -1;
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op->per_step)
            l->home[g->node[i].out[0]] = total_slot(l, g->node[i].out[0]);
}

/* ---- nodes ---- */

/* May the output lie where input 0 did? */
static bool in_place(const meg_lower *l, const meg_node *v, const meg_spec *s, int slot)
{
    int x = v->in[0], y = v->out[0];
    const meg_value *a = &l->g->value[x], *b = &l->g->value[y];
    return s->in_place & MEG_BIT(MEG_Y) && a->kind == MEG_MADE && slot == l->home[x] &&
           !l->keep[x] && l->uses[x] == 0 && l->out->slot[slot].region == MEG_FRAME &&
           l->out->slot[slot].format == s->format[MEG_Y] && meg_box_equal(&a->shape, &b->shape);
}

static void outputs(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s)
{
    meg_mask writes = meg_node_writes(v, i->pass);
    for (int k = 0; k < v->outputs; k++) {
        if (!(writes & MEG_BIT(MEG_Y + k))) continue;
        int slot = k == 0 && in_place(l, v, s, i->slot[MEG_X]) ? i->slot[MEG_X]
                                                               : meg_lower_write(l, v, MEG_Y + k, s);
        l->out->slot[slot].value = v->out[k];
        i->slot[MEG_Y + k] = slot;
        l->format[v->out[k]] = l->out->slot[slot].format;
    }
    for (int k = 0; k < v->op->auxes; k++)
        if (writes & MEG_BIT(MEG_AUX + k))
            i->slot[MEG_AUX + k] = l->aux[v->id * MEG_AUXES + k] =
                meg_lower_write(l, v, MEG_AUX + k, s);
    i->written |= writes;
}

/* The running statistics follow the batch's, once per micro-batch, in ascending order. */
static void update_state(meg_lower *l, const meg_node *v)
{
    meg_spec s;
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, MEG_STATE_PASS);
    meg_lower_describe(l, v, MEG_STATE_PASS, &s);
    meg_lower_reads(l, &i, v, &s);
    i.written = meg_node_writes(v, MEG_STATE_PASS);
    meg_lower_scratch(l, &i, &s);
    meg_lower_emit(l, &i);
}

static int total_of(const meg_lower *l, int value)
{
    for (int i = 0; i < l->g->losses; i++)
        if (l->g->loss[i].value == value) return l->out->loss[i];
    if (value == l->g->correct) return l->out->correct;
    int maker = l->g->value[value].maker;
    return l->g->node[maker].op->per_step ? l->home[value] : -1;
}

static void forward_node(meg_lower *l, const meg_node *v)
{
    meg_spec s;
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, l->out->train ? MEG_FORWARD : MEG_EVAL);
    int total = total_of(l, v->out[0]);
    meg_lower_describe(l, v, i.pass, &s);
    meg_lower_reads(l, &i, v, &s);
    for (int k = 0; k < v->inputs; k++)
        l->uses[v->in[k]]--;
    outputs(l, &i, v, &s);
    meg_lower_scratch(l, &i, &s);
    meg_lower_emit(l, &i);
    if (total >= 0) {
        meg_lower_add(l, total, total, i.slot[MEG_Y]);
        l->home[v->out[0]] = total;
    } else
        for (int k = 0; k < v->outputs; k++)
            l->home[v->out[k]] = i.slot[MEG_Y + k];
    if (l->out->train && meg_op_has(v->op, MEG_STATE_PASS)) update_state(l, v);
}

/* Labels, and states (weights of classes), which do not change within a step. */
static bool label_only(const meg_lower *l, const bool early[], const meg_node *v)
{
    bool any = false;
    for (int k = 0; k < v->inputs; k++) {
        const meg_value *x = &l->g->value[v->in[k]];
        bool label = x->kind == MEG_LABEL || (x->maker >= 0 && early[x->maker]);
        if (!label && x->kind != MEG_STATE) return false;
        any = any || label;
    }
    return any;
}

void meg_lower_forward(meg_lower *l)
{
    const meg_graph *g = l->g;
    bool *early = meg_pool_alloc(l->pool, (size_t)g->nodes + 1);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            l->uses[g->node[i].in[k]]++;
    for (int i = 0; i < g->nodes; i++)
        early[i] = label_only(l, early, &g->node[i]);
    for (int now = 1; now >= 0; now--) {
        l->block = now ? MEG_BLOCK_LABELS : MEG_BLOCK_FORWARD;
        l->duplicates = 0;
        for (int i = 0; i < g->nodes; i++)
            if (early[i] == now) forward_node(l, &g->node[i]);
    }
}

void meg_lower_replay(meg_lower *l, int value)
{
    meg_spec s;
    const meg_node *v = &l->g->node[l->g->value[value].maker];
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, MEG_REPLAY);
    meg_lower_describe(l, v, MEG_REPLAY, &s);
    meg_lower_reads(l, &i, v, &s);
    i.slot[MEG_Y] = l->home[value] = meg_lower_write(l, v, MEG_Y, &s);
    i.written = MEG_BIT(MEG_Y);
    meg_lower_scratch(l, &i, &s);
    meg_lower_emit(l, &i);
}
