/* Complete gradients. A weight that no other rank sums, or whose sum was scattered already (zero=3), is
 * updated at once if the step has one micro-batch, so gradients do not pile up. Else they are summed:
 *
 *     over micro-batches   into held memory, zeroed at the beginning of the step
 *     over ranks           in buckets of neighbouring gradients, as soon as the last micro-batch
 *                          has completed them, while backward goes on
 *     update               at the end of the step, each as soon as its bucket is there
 *
 * Ranks that share weights: replicas, the inverted replica, and the stages of a tied weight, which
 * goes alone. Running statistics are sums as well (ops/norm/norm.h): who does not have the step's first
 * sample starts from zero.
 */
#include "plan/lower/lowering.h"

/* ---- who shares ---- */

/* Does a station of this rank read the weight? */
static bool reads(const meg_lower *l, const meg_station *t, int value)
{
    const meg_entry *e = l->entry;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++)
        if (t->position[e->segment_of[e->reader[i]]] >= 0) return true;
    return false;
}

/* The team of a weight; *own: all its ranks have just this segment of this station, once. So they
 * complete the same gradients in the same order. */
static meg_team sharers(const meg_lower *l, int value, bool *own)
{
    *own = l->read_in[value] != MEG_SEVERAL && l->here == 1;
    return l->sharers[value];
}

/* Of the rank's stations that use the weight, is this the last? It reduces and updates. */
static bool settles(const meg_lower *l, int value)
{
    for (const meg_station *t = l->out + 1; t < l->entry->station + l->entry->stations; t++)
        if (reads(l, t, value)) return false;
    return true;
}

/* Of the rank's stations of this stage (one in each direction), is this the last? */
bool meg_lower_last(const meg_lower *l)
{
    for (const meg_station *t = l->out + 1; t < l->entry->station + l->entry->stations; t++)
        if (t->stage == l->out->stage) return false;
    return true;
}

/* ---- running statistics ---- */

/* Does the rank have the step's first sample and pixel in this segment, be it in another direction? */
static bool has_first_sample(const meg_lower *l, int segment)
{
    const meg_entry *e = l->entry;
    const meg_mesh *mesh = meg_entry_mesh(e, 0, segment);
    int position = l->out->position[segment], n = position / (mesh->size / mesh->dim[MEG_N]);
    const int64_t *cut = meg_plan_samples(l->plan, e->graph->batch, mesh->dim[MEG_N]);
    if (!meg_segment_first(e, segment, position)) return false;
    if (cut[n] != 0 || cut[n + 1] == 0 || e->idle) return false;
    for (int i = 0; i < e->stations; i++)
        if (e->station[i].stage == l->out->stage &&
            e->station[i].direction == e->timetable->direction[0])
            return true;
    return false;
}

/* The states that the nodes of each segment write, next to one another in held memory. */
void meg_lower_states(meg_lower *l)
{
    size_t segments = (size_t)l->entry->segments;
    l->states_first = meg_pool_alloc(l->pool, segments * sizeof(int));
    l->states_last = meg_pool_alloc(l->pool, segments * sizeof(int));
    for (size_t i = 0; i < segments; i++)
        l->states_first[i] = -1;
    for (int i = 0; i < l->g->nodes && l->entry->train; i++) {
        const meg_node *v = &l->g->node[i];
        meg_mask writes = meg_op_writes(v->op, MEG_STATE_PASS);
        if (!l->mine[i] || !meg_op_has(v->op, MEG_STATE_PASS) || v->op->state_first) continue;
        for (int k = 0; k < v->inputs; k++) {
            int segment = l->entry->segment_of[i];
            if (!(writes & MEG_BIT(MEG_X + k))) continue;
            int slot = meg_lower_held(l, v->in[k], MEG_ROLE_VALUE, 0, MEG_FORMAT_PLAIN, 0);
            if (l->states_first[segment] < 0) l->states_first[segment] = slot;
            l->states_last[segment] = slot;
        }
    }
}

/* A slot over all held memory from one slot to another. */
static int held_range(meg_lower *l, int first, int last)
{
    const meg_slot *a = &l->out->slot[first], *b = &l->out->slot[last];
    int64_t bytes = b->offset + b->bytes - a->offset, each = meg_dtype_bytes(a->dtype);
    meg_slot s = {.role = MEG_ROLE_BUCKET,
                  .value = -1,
                  .dtype = a->dtype,
                  .region = MEG_HELD,
                  .offset = a->offset,
                  .bytes = bytes,
                  .box = meg_box_of(1, bytes / each, 1, 1, 1)};
    return meg_lower_slot(l, s);
}

static void share_states(meg_lower *l)
{
    for (int i = 0; i < l->entry->segments; i++) {
        if (l->states_first[i] < 0 || !meg_lower_last(l)) continue;
        meg_team team = meg_lower_channels(l, i);
        if (team.count == 1) continue;
        int all = held_range(l, l->states_first[i], l->states_last[i]);
        l->block = MEG_BLOCK_BEGIN;
        if (!has_first_sample(l, i)) meg_lower_zero(l, all);
        l->block = MEG_BLOCK_UPDATE;
        meg_instr r = meg_lower_reduce(l, all, &team, meg_tag_of_states(l->entry, i));
        meg_lower_emit(l, &r);
    }
}

/* ---- gradients ---- */

int meg_lower_gradient(meg_lower *l, int value)
{
    const meg_slot w = l->out->slot[l->home[value]];
    return meg_lower_held(l, value, MEG_ROLE_GRADIENT, 0, w.format, w.bytes);
}

/* Reduces the settled gradients that are in no bucket yet. */
static void close_bucket(meg_lower *l)
{
    bool own;
    if (l->bucket_first == l->settled_count) return;
    int first = l->settled[l->bucket_first], last = l->settled[l->settled_count - 1];
    l->bucket_first = l->settled_count;
    meg_team team = sharers(l, first, &own);
    if (!own || team.count == 1 || meg_lower_scattered(l, first)) return;
    int range = held_range(l, meg_lower_gradient(l, first), meg_lower_gradient(l, last));
    meg_instr r = meg_lower_reduce(l, range, &team,
                                   meg_tag_of_value(l->entry, first, MEG_TAG_GRADIENT));
    r.last = true;
    meg_lower_emit(l, &r);
}

/* May this gradient join those before it? They must lie side by side. */
static bool joins(meg_lower *l, int value)
{
    bool own;
    if (l->bucket_first == l->settled_count) return true;
    const meg_slot *first = &l->out->slot[meg_lower_gradient(l, l->settled[l->bucket_first])];
    const meg_slot *last = &l->out->slot[meg_lower_gradient(l, l->settled[l->settled_count - 1])];
    const meg_slot *next = &l->out->slot[meg_lower_gradient(l, value)];
    int64_t end = last->offset + last->bytes;
    meg_team theirs = sharers(l, l->settled[l->bucket_first], &own);
    bool before = own;
    meg_team its = sharers(l, value, &own);
    bool alike = l->read_in[l->settled[l->bucket_first]] == l->read_in[value];
    alike = alike && !meg_lower_scattered(l, value) &&
            !meg_lower_scattered(l, l->settled[l->bucket_first]);
    return before && own && alike && meg_lower_same_team(&theirs, &its) && next->offset >= end &&
           next->offset < end + MEG_ALIGN && end - first->offset < l->plan->options.bucket;
}

/* Is the weight updated as soon as this station has its gradient? */
static bool at_once(const meg_lower *l, int value)
{
    bool own;
    meg_team team = sharers(l, value, &own);
    bool alone = team.count == 1 || meg_lower_scattered(l, value);
    return own && alone && l->out->micros == 1 && !l->plan->options.keep_grads;
}

/* One contribution in the whole step of this rank: nothing to be added to. */
bool meg_lower_direct(meg_lower *l, int value)
{
    bool own;
    if (l->g->value[value].kind != MEG_PARAMETER || l->owed[value] != 1) return false;
    sharers(l, value, &own);
    if (meg_lower_scattered(l, value)) return false; /* summed over the team first */
    return own && l->parts[value].count == 0 && l->out->micros == 1 && !at_once(l, value);
}

static void sum_up(meg_lower *l, int value, int slot)
{
    int sum = meg_lower_gradient(l, value);
    if (!joins(l, value)) close_bucket(l);
    l->settled[l->settled_count++] = value;
    if (slot == sum) return;
    meg_lower_add(l, sum, sum, slot);
    l->block = MEG_BLOCK_BEGIN;
    meg_lower_zero(l, sum);
}

static void take_in(meg_lower *l, int value, int slot)
{
    if (at_once(l, value)) meg_lower_update(l, value, slot);
    else sum_up(l, value, slot);
}

/* Of a scattered weight, the rank's part of the sum over its team, which was under way while backward
 * went on to the next. */
static void take_summed(meg_lower *l)
{
    int value = l->summed;
    if (value < 0) return;
    meg_block_kind here = l->block;
    l->summed = -1;
    meg_box home = meg_lower_shard_box(l, value, l->out->box[value]);
    if (!meg_box_empty(&home)) take_in(l, value, l->summed_slot);
    l->block = here;
}

void meg_lower_settle(meg_lower *l, int value)
{
    meg_contributions *p = &l->parts[value];
    if (l->g->value[value].kind != MEG_PARAMETER || l->owed[value] > 0 || p->count == 0) return;
    meg_block_kind here = l->block;
    if (l->entry->timetable->split) l->block = MEG_BLOCK_WEIGHTS;
    meg_lower_gather(l, value, 1);
    int slot = p->slot[0];
    p->count = 0;
    if (meg_lower_scattered(l, value)) {
        slot = meg_lower_sum(l, value, slot);
        take_summed(l); /* the one before */
        l->summed = value;
        l->summed_slot = slot;
        if (l->out->slot[slot].bytes > l->plan->options.bucket)
            take_summed(l); /* no room for two */
    } else take_in(l, value, slot);
    l->block = here;
}

/* Has the weight a gradient from other stages or segments only? */
static bool from_others(const meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    bool here = false, any = false, read = false;
    if (l->read_in[value] != MEG_SEVERAL) return false;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1] && !here; i++) {
        int v = e->reader[i];
        bool gives = meg_lower_gives(l, &l->g->node[v], value);
        any = any || gives;
        here = gives && l->mine[v];
        read = read || l->mine[v];
    }
    return read && any && !here;
}

/* A tied weight that the station uses off the way to a loss: it adds nothing to the gradient, but
 * must follow the updates. */
static void follow(meg_lower *l)
{
    for (int i = 0; i < l->g->values; i++) {
        if (l->g->value[i].kind != MEG_PARAMETER || !from_others(l, i)) continue;
        l->settled[l->settled_count++] = i;
        l->block = MEG_BLOCK_BEGIN;
        meg_lower_zero(l, meg_lower_gradient(l, i));
    }
}

/* All begin before the first update waits for its own: stages complete them in different order. */
static void sum_tied(meg_lower *l)
{
    l->block = MEG_BLOCK_TIED;
    for (int i = 0; i < l->settled_count; i++) {
        bool own;
        int value = l->settled[i];
        meg_team team = sharers(l, value, &own);
        if (own || team.count == 1 || !settles(l, value)) continue;
        int tag = meg_tag_of_value(l->entry, value, MEG_TAG_GRADIENT);
        meg_instr r = meg_lower_reduce(l, meg_lower_gradient(l, value), &team, tag);
        meg_lower_emit(l, &r);
    }
}

void meg_lower_finish(meg_lower *l)
{
    if (l->entry->timetable->split) l->block = MEG_BLOCK_WEIGHTS;
    take_summed(l);
    close_bucket(l);
    follow(l);
    sum_tied(l);
    l->block = MEG_BLOCK_UPDATE;
    for (int i = 0; i < l->settled_count; i++)
        if (settles(l, l->settled[i]))
            meg_lower_update(l, l->settled[i], meg_lower_gradient(l, l->settled[i]));
    share_states(l);
}
