/* The blocks before backward: begin, labels, forward.
 *
 *     begin    LOAD scalars, seeds, labels of the whole step; ZERO totals
 *     labels   what depends on labels alone (the losses' denominators): summed over all
 *              micro-batches before the first loss is computed
 *     forward  the rest, in graph order
 */
#include "plan/lower/lowering.h"

static int loaded_slot(meg_lower *l, meg_slot s)
{
    meg_instr i = meg_lower_instr(MEG_LOAD, NULL, MEG_FORWARD);
    i.slot[MEG_Y] = meg_lower_step_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    meg_lower_emit(l, &i);
    return i.slot[MEG_Y];
}

static int total_slot(meg_lower *l, int value)
{
    const meg_value *x = &l->g->value[value];
    int id = meg_lower_step_slot(l, (meg_slot){.role = MEG_ROLE_TOTAL,
                                               .value = value,
                                               .box = x->shape,
                                               .dtype = meg_entry_dtype(l->entry, x->dtype)});
    meg_lower_zero(l, id);
    return id;
}

static void load_label(meg_lower *l, int value)
{
    meg_dtype type = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    meg_box box = l->out->box[value];
    int64_t bytes = meg_box_size(&box) * meg_dtype_bytes(type);
    l->home[value] = loaded_slot(
        l, (meg_slot){.value = value, .box = box, .dtype = type, .per_micro = bytes});
}

/* Those that the station reads; not yet what is still to come. */
static void load_labels(meg_lower *l)
{
    for (int i = 0; i < l->g->nodes; i++) {
        const meg_node *v = &l->g->node[i];
        for (int k = 0; k < v->inputs && l->mine[i]; k++)
            if (l->g->value[v->in[k]].kind == MEG_LABEL && l->home[v->in[k]] < 0 &&
                !meg_graph_awaits(l->g, v->in[k]))
                load_label(l, v->in[k]);
    }
}

/* Which copy of a value the rank makes. A loss counts once, and so does its gradient. */
static int copy_of(const meg_lower *l, int value)
{
    int segment = l->entry->segment_of[l->g->value[value].maker];
    return meg_entry_part(l->entry, value, l->out->position[segment]).copy;
}

static void seed_losses(meg_lower *l)
{
    for (int i = 0; i < l->g->losses; i++) {
        int v = l->g->loss[i].value;
        if (!l->mine[l->g->value[v].maker]) continue;
        meg_slot s = {.role = MEG_ROLE_SEED,
                      .value = v,
                      .index = i,
                      .box = l->g->value[v].shape,
                      .dtype = l->entry->real};
        bool counts = copy_of(l, v) == 0;
        int seed = counts ? loaded_slot(l, s) : meg_lower_step_slot(l, s);
        if (!counts) meg_lower_zero(l, seed);
        l->parts[v].slot[l->parts[v].count++] = seed;
        l->holders[seed] = 2; /* the seed itself holds it too: never written over */
    }
}

/* The total of both directions, where one rank has the stage in both: the same memory. */
static int common_total(meg_lower *l, int value)
{
    for (const meg_station *t = l->entry->station; t < l->out; t++)
        for (int i = 0; i < t->slots && t->stage == l->out->stage; i++)
            if (t->slot[i].role == MEG_ROLE_TOTAL && t->slot[i].value == value) {
                int id = meg_lower_slot(l, t->slot[i]);
                meg_lower_zero(l, id);
                return id;
            }
    return total_slot(l, value);
}

/* The total of a value of the station; -1: another's. */
static int own_total(meg_lower *l, int value)
{
    return value >= 0 && l->mine[l->g->value[value].maker] ? total_slot(l, value) : -1;
}

void meg_lower_begin(meg_lower *l)
{
    const meg_graph *g = l->g;
    l->block = MEG_BLOCK_BEGIN;
    l->scalars = -1;
    if (l->entry->train) {
        l->scalars = loaded_slot(l, (meg_slot){.role = MEG_ROLE_SCALARS,
                                               .value = -1,
                                               .box = meg_box_of(1, 4, 1, 1, 1),
                                               .dtype = MEG_F64});
        seed_losses(l);
    }
    load_labels(l);
    for (int i = 0; i < g->losses; i++)
        l->out->loss[i] = own_total(l, g->loss[i].value);
    l->out->correct = own_total(l, g->correct);
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op->per_step && l->mine[i])
            l->home[g->node[i].out[0]] = common_total(l, g->node[i].out[0]);
}

/* ---- nodes ---- */

/* May the output lie where input 0 did? */
static bool in_place(const meg_lower *l, const meg_node *v, const meg_spec *s, int slot)
{
    int x = v->in[0];
    meg_box box = meg_lower_box(l, v, s, MEG_Y);
    return s->in_place & MEG_BIT(MEG_Y) && l->g->value[x].kind == MEG_MADE && slot == l->home[x] &&
           !l->keep[x] && l->uses[x] == 0 && l->out->slot[slot].region == MEG_FRAME &&
           l->out->slot[slot].format == s->format[MEG_Y] &&
           meg_box_equal(&l->out->slot[slot].box, &box) && !l->goes[x];
}

static void trim(meg_lower *l, int slot, meg_box box)
{
    meg_slot *s = &l->out->slot[slot];
    if (meg_box_equal(&s->box, &box)) return;
    s->box = box;
    s->bytes = meg_format_bytes(s->format, &box, s->dtype);
}

static void outputs(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s)
{
    meg_mask writes = meg_node_writes(v, i->pass);
    for (int k = 0; k < v->outputs; k++) {
        if (!(writes & MEG_BIT(MEG_Y + k))) continue;
        int slot = k == 0 && in_place(l, v, s, i->slot[MEG_X])
                       ? i->slot[MEG_X]
                       : meg_lower_write(l, v, MEG_Y + k, s);
        if (meg_entry_partial(l->entry, v->out[k])) /* shares are summed as they lie */
            trim(l, slot, meg_lower_part(l, v->out[k]));
        l->out->slot[slot].value = v->out[k];
        i->slot[MEG_Y + k] = slot;
        l->format[v->out[k]] = l->out->slot[slot].format;
    }
    for (int k = 0; k < v->op->auxes; k++)
        if (writes & MEG_BIT(MEG_AUX + k))
            i->slot[MEG_AUX + k] = l->aux[v->id * MEG_AUXES + k] = meg_lower_write(l, v,
                                                                                   MEG_AUX + k, s);
    i->written |= writes;
}

/* Of ranks that share pixels, the first adds to the running statistics. */
static bool adds_to_state(const meg_lower *l, const meg_node *v)
{
    int segment = l->entry->segment_of[v->id];
    bool any = !meg_box_empty(&l->out->work[v->id].out);
    return any && meg_segment_first(l->entry, segment, l->out->position[segment]);
}

/* The running statistics take in the micro-batch's; or what goes before all micro-batches goes on. */
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

/* A share of a value becomes the whole: summed over those that have made one. */
static void share(meg_lower *l, const meg_node *v)
{
    int y = v->out[0];
    if (!meg_entry_partial(l->entry, y)) return;
    if (l->format[y] != MEG_FORMAT_PLAIN) { /* kernels of other shares may like other formats */
        l->home[y] = meg_lower_copy(l, l->home[y], MEG_FORMAT_PLAIN, 0, v);
        l->format[y] = MEG_FORMAT_PLAIN;
    }
    meg_team team = meg_lower_shares(l, y, false);
    meg_instr r = meg_lower_reduce(l, l->home[y], &team,
                                   meg_tag_of_value(l->entry, y, MEG_TAG_SUM + l->out->direction));
    r.max = v->op->max;
    meg_lower_emit(l, &r);
}

/* What was made becomes what is held. */
static void hold(meg_lower *l, const meg_node *v)
{
    for (int k = 0; k < v->outputs; k++) {
        int y = v->out[k];
        if (l->home[y] >= 0 && !meg_is_move(v)) l->home[y] = meg_lower_widen(l, l->home[y], y);
        meg_lower_send(l, y);
        meg_lower_take(l, y);
    }
}

/* Does the entry keep what the network makes, for whoever asked for it? */
static bool keeps_outputs(const meg_lower *l)
{
    return meg_graph_late(l->g) || (!l->entry->train && l->plan->options.predict);
}

/* A copy that lasts to the end of the step, of all micro-batches. Ranks that make the same leave it to the
 * first of them. */
static void keep_output(meg_lower *l, int value, int index)
{
    meg_slot s = {.role = MEG_ROLE_OUTPUT, .value = value, .index = index};
    s.box = meg_lower_part(l, value);
    s.dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    s.per_micro = meg_format_bytes(MEG_FORMAT_PLAIN, &s.box, s.dtype);
    if (copy_of(l, value) > 0 || meg_box_empty(&s.box)) return;
    meg_lower_fill(l, meg_lower_step_slot(l, s), l->home[value]);
}

static void keep_outputs(meg_lower *l, const meg_node *v)
{
    for (int i = 0; keeps_outputs(l) && i < l->g->outputs; i++)
        for (int k = 0; k < v->outputs; k++)
            if (l->g->output[i] == v->out[k]) keep_output(l, v->out[k], i);
}

/* A loss outside is no number here: its total stays 0. */
static void forward_late(meg_lower *l, const meg_node *v)
{
    l->uses[v->in[0]]--;
    l->home[v->out[0]] = total_of(l, v->out[0]);
}

static void forward_node(meg_lower *l, const meg_node *v)
{
    meg_spec s;
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, l->entry->train ? MEG_FORWARD : MEG_EVAL);
    int total = total_of(l, v->out[0]);
    meg_lower_describe(l, v, i.pass, &s);
    meg_lower_reads(l, &i, v, &s);
    for (int k = 0; k < v->inputs; k++)
        l->uses[v->in[k]]--;
    outputs(l, &i, v, &s);
    meg_lower_scratch(l, &i, &s);
    meg_lower_emit(l, &i);
    if (total >= 0) {
        bool counts = v->op->per_step || copy_of(l, v->out[0]) == 0;
        if (counts) meg_lower_add(l, total, total, i.slot[MEG_Y]);
        l->home[v->out[0]] = total;
    } else
        for (int k = 0; k < v->outputs; k++)
            l->home[v->out[k]] = i.slot[MEG_Y + k];
    if (total < 0) share(l, v);
    bool states = l->entry->train && meg_op_has(v->op, MEG_STATE_PASS) && !v->op->state_first;
    if (states && adds_to_state(l, v)) update_state(l, v);
    hold(l, v);
    keep_outputs(l, v);
}

static void forward_move(meg_lower *l, const meg_node *v)
{
    l->uses[v->in[0]]--;
    hold(l, v);
}

/* Computes nothing: what was loaded goes to those that read it. */
static void forward_feed(meg_lower *l, const meg_node *v)
{
    int y = v->out[0];
    l->uses[v->in[0]]--;
    l->home[y] = meg_lower_get(l, v->in[0], MEG_FORMAT_PLAIN, 0, NULL);
    l->format[y] = MEG_FORMAT_PLAIN;
    meg_lower_send(l, y);
}

/* What is summed over the samples of all replicas and read within the step, once for all
 * micro-batches. */
static void count_labels(meg_lower *l)
{
    l->block = MEG_BLOCK_COUNTED;
    for (int i = 0; i < l->g->nodes; i++) {
        const meg_node *v = &l->g->node[i];
        if (!l->mine[i] || !v->op->per_step) continue;
        meg_team team = meg_lower_shares(l, v->out[0], true);
        if (team.count == 1 || !meg_lower_last(l)) continue;
        meg_instr r = meg_lower_reduce(l, l->home[v->out[0]], &team,
                                       meg_tag_of_value(l->entry, v->out[0], MEG_TAG_SUM));
        meg_lower_emit(l, &r);
    }
}

/* Labels, and what is fixed (weights of classes), which do not change within a step. */
static bool label_only(const meg_lower *l, const meg_node *v)
{
    bool any = false;
    for (int k = 0; k < v->inputs; k++) {
        const meg_value *x = &l->g->value[v->in[k]];
        bool label = x->kind == MEG_LABEL || (x->maker >= 0 && l->early[x->maker]);
        if (!label && x->kind != MEG_FIXED) return false;
        any = any || label;
    }
    return any;
}

void meg_lower_forward(meg_lower *l)
{
    const meg_graph *g = l->g;
    l->early = meg_pool_alloc(l->pool, (size_t)g->nodes + 1);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs && l->mine[i]; k++)
            l->uses[g->node[i].in[k]]++;
    for (int i = 0; i < g->nodes; i++)
        l->early[i] = label_only(l, &g->node[i]);
    for (int now = 1; now >= 0; now--) {
        l->block = now ? MEG_BLOCK_LABELS : MEG_BLOCK_FORWARD;
        meg_lower_forget(l, 0);
        meg_lower_receive(l, now);
        for (int i = 0; i < g->nodes; i++) {
            if (!l->mine[i] || l->early[i] != now) continue;
            if (!now) meg_lower_ahead(l, i, false);
            if (meg_is_feed(&g->node[i])) forward_feed(l, &g->node[i]);
            else if (meg_is_move(&g->node[i])) forward_move(l, &g->node[i]);
            else if (g->node[i].op->late) forward_late(l, &g->node[i]);
            else forward_node(l, &g->node[i]);
        }
        if (now) count_labels(l);
    }
}

/* In the block that comes first, but lowered last: weights lie as the layers like them. Of both directions of a stage,
 * one does it. */
void meg_lower_state_first(meg_lower *l)
{
    meg_block_kind here = l->block;
    l->block = MEG_BLOCK_BEGIN;
    meg_lower_forget(l, 0);
    for (int i = 0; i < l->g->nodes; i++)
        if (l->mine[i] && l->g->node[i].op->state_first && meg_lower_last(l))
            update_state(l, &l->g->node[i]);
    meg_lower_forget(l, 0);
    l->block = here;
}
