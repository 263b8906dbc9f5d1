/* A rank's stations: each put together of what the other parts write, its blocks joined, its slots placed.
 */
#include "plan/lower/lowering.h"
#include "plan/partition/placement.h"

#include <stdlib.h>

/* ---- one station ---- */

static void note(int *in, int number)
{
    if (*in == -1) *in = number;
    if (*in != number) *in = MEG_SEVERAL;
}

/* Which segments read a value; how often the rank has the stage. */
static void find_users(meg_lower *l)
{
    size_t values = (size_t)l->g->values + 1;
    l->mine = meg_pool_alloc(l->pool, (size_t)l->g->nodes + 1);
    l->goes = meg_pool_alloc(l->pool, values);
    l->read_in = meg_pool_alloc(l->pool, values * sizeof(int));
    for (size_t i = 0; i < values; i++)
        l->read_in[i] = -1;
    for (int i = 0; i < l->g->nodes; i++)
        for (int k = 0; k < l->g->node[i].inputs; k++) {
            int x = l->g->node[i].in[k];
            note(&l->read_in[x], l->entry->segment_of[i]);
        }
    for (int i = 0; i < l->entry->stations; i++)
        l->here += l->entry->station[i].stage == l->out->stage;
}

/* Room for the contributions to come: of nodes, and of other ranks. */
static void make_room(meg_lower *l)
{
    size_t values = (size_t)l->g->values + 1;
    int *count = meg_pool_alloc(l->pool, values * sizeof(int));
    l->parts = meg_pool_alloc(l->pool, values * sizeof(meg_contributions));
    for (int i = 0; i < l->g->nodes; i++)
        for (int k = 0; k < l->g->node[i].inputs; k++)
            count[l->g->node[i].in[k]]++;
    for (int i = 0; i < l->exchanges; i++)
        count[l->exchange[i].from] += l->exchange[i].sends + l->exchange[i].receives;
    for (size_t i = 0; i < values; i++)
        l->parts[i].slot = meg_pool_alloc(l->pool, ((size_t)count[i] + 1) * sizeof(int));
}

static void prepare(meg_lower *l)
{
    size_t values = (size_t)l->g->values + 1, nodes = (size_t)l->g->nodes + 1, none = 0;
    l->grad = meg_pool_alloc(l->pool, values);
    l->keep = meg_pool_alloc(l->pool, values);
    l->replay = meg_pool_alloc(l->pool, values);
    l->remade = meg_pool_alloc(l->pool, values);
    l->crosses = meg_pool_alloc(l->pool, values);
    l->ran = meg_pool_alloc(l->pool, nodes);
    l->active = meg_pool_alloc(l->pool, nodes);
    l->uses = meg_pool_alloc(l->pool, values * sizeof(int));
    l->owed = meg_pool_alloc(l->pool, values * sizeof(int));
    l->home = meg_pool_alloc(l->pool, values * sizeof(int));
    l->held = meg_pool_alloc(l->pool, values * MEG_HELD_KEYS * sizeof(int));
    l->settled = meg_pool_alloc(l->pool, values * sizeof(int));
    l->format = l->out->format = meg_grow(NULL, &none, values, sizeof(meg_format));
    l->aux = meg_pool_alloc(l->pool, nodes * MEG_AUXES * sizeof(int));
    l->summing = l->summed = -1;
    for (size_t i = 0; i < values; i++)
        l->home[i] = -1;
    for (int i = 0; i < l->plan->held_slots; i++) /* kernels look at what there is */
        if (l->plan->held[i].role == MEG_ROLE_VALUE)
            l->format[l->plan->held[i].value] = l->plan->held[i].format;
    for (size_t i = 0; i < values * MEG_HELD_KEYS; i++)
        l->held[i] = -1;
    for (size_t i = 0; i < nodes * MEG_AUXES; i++)
        l->aux[i] = -1;
    find_users(l);
}

/* Behind the last instruction of the block that this one is in. */
static int end_of(const meg_station *t, int instr)
{
    for (int b = 0; b < MEG_BLOCKS; b++)
        if (instr < t->block[b].first + t->block[b].count)
            return t->block[b].first + t->block[b].count;
    return t->instrs;
}

/* Lives of slots. What is sent lives to the end of the block: nobody has to wait for the message. */
static void touch(meg_station *t)
{
    for (int i = 0; i < t->slots; i++)
        t->slot[i].born = t->slot[i].dies = -1;
    for (int i = 0; i < t->instrs; i++)
        for (int o = 0; o < MEG_OPERANDS; o++) {
            int s = t->instr[i].slot[o];
            if (s < 0 || t->instr[i].code == MEG_FREE) continue;
            if (t->slot[s].born < 0) t->slot[s].born = i;
            if (t->slot[s].dies < i) t->slot[s].dies = i;
            if (t->instr[i].code == MEG_SEND) t->slot[s].dies = end_of(t, i) - 1;
        }
}

static void append(meg_station *t, const meg_instr *i)
{
    t->instr = meg_grow(t->instr, &t->instr_room, (size_t)t->instrs + 1, sizeof *t->instr);
    t->instr[t->instrs++] = *i;
}

static void append_free(meg_station *t, int slot)
{
    meg_instr f = meg_lower_instr(MEG_FREE, NULL, MEG_FORWARD);
    f.slot[MEG_X] = slot;
    append(t, &f);
}

static int by_death(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    return x->dies != y->dies ? (x->dies < y->dies ? -1 : 1) : (x < y ? -1 : x > y);
}

/* Joins the blocks; a FREE behind the end of every frame slot's life. */
static void join_blocks(meg_lower *l)
{
    meg_station *t = l->out;
    for (int b = 0; b < MEG_BLOCKS; b++) {
        t->block[b] = (meg_block){t->instrs, l->list[b].count};
        for (int i = 0; i < l->list[b].count; i++)
            append(t, &l->list[b].at[i]);
    }
    touch(t);
    const meg_slot **dying = calloc((size_t)t->slots + 1, sizeof *dying);
    int count = 0, dead = 0, at = 0;
    if (!dying) abort();
    for (int i = 0; i < t->slots; i++)
        if (t->slot[i].region == MEG_FRAME && t->slot[i].born >= 0) dying[count++] = &t->slot[i];
    qsort(dying, (size_t)count, sizeof *dying, by_death);
    t->instrs = 0;
    for (int b = 0; b < MEG_BLOCKS; b++) {
        t->block[b].first = t->instrs;
        for (int i = 0; i < l->list[b].count; i++, at++) {
            append(t, &l->list[b].at[i]);
            for (; dead < count && dying[dead]->dies == at; dead++)
                append_free(t, (int)(dying[dead] - t->slot));
        }
        t->block[b].count = t->instrs - t->block[b].first;
    }
    free(dying);
    touch(t);
}

/* Where frames are several, what lives within one block is not theirs; what is sent or received
 * is, since messages are under way while other blocks run. */
static void part_temporary(meg_station *t)
{
    if (t->entry->stations == 1 && t->frames == 1) return;
    bool *travels = calloc((size_t)t->slots + 1, sizeof *travels);
    if (!travels) abort();
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *in = &t->instr[i];
        if (in->code == MEG_SEND) travels[in->slot[MEG_X]] = true;
        if (in->code == MEG_RECV) travels[in->slot[MEG_Y]] = true;
    }
    for (int i = 0; i < t->slots; i++) {
        meg_slot *s = &t->slot[i];
        for (int b = 0; b < MEG_BLOCKS; b++) {
            int first = t->block[b].first, end = first + t->block[b].count;
            if (s->region == MEG_FRAME && !travels[i] && s->born >= first && s->dies < end)
                s->region = MEG_TEMPORARY;
        }
    }
    free(travels);
}

/* Both passes, up to where it is certain that the rest holds no weight that is not held yet. */
static void lower_passes(meg_lower *l)
{
    if (l->foreign && meg_lower_all_held(l)) return;
    if (l->entry->train) meg_lower_stash(l);
    meg_lower_exchanges(l);
    make_room(l);
    meg_lower_states(l);
    meg_lower_begin(l);
    meg_lower_forward(l);
    if (l->foreign && meg_lower_all_held(l)) return;
    if (!l->entry->train) return;
    meg_lower_state_first(l);
    meg_lower_backward(l);
}

static void lower_station(meg_plan *p, meg_entry *e, meg_station *t, const meg_variant *how)
{
    meg_lower l = {.plan = p, .entry = e, .out = t, .g = e->graph, .foreign = how->foreign};
    l.pool = meg_pool_new();
    if (how->again) t->again = how->again[t - e->station];
    prepare(&l);
    meg_lower_parts(&l);
    lower_passes(&l);
    if (!how->foreign) {
        if (e->idle || t->micros == 0) meg_lower_idle(&l);
        join_blocks(&l);
        part_temporary(t);
        if (how->weighed) how->weighed[t - e->station] = meg_lower_weigh(&l);
        meg_station_place(t);
    }
    for (int b = 0; b < MEG_BLOCKS; b++)
        free(l.list[b].at);
    free(l.holders);
    free(l.along);
    free(l.local);
    free(l.duplicate);
    meg_pool_free(l.pool);
}

/* ---- all of the rank's ---- */

static int micros_of(const meg_timetable *t, int direction)
{
    int count = 0;
    for (int m = 0; m < t->micro; m++)
        count += t->direction[m] == direction;
    return count;
}

/* Where the rank whose part it is sits on the meshes of the stage. */
static void find_positions(const meg_plan *p, const meg_entry *e, meg_station *t, bool foreign)
{
    t->position = meg_pool_alloc(p->lowered, (size_t)e->segments * sizeof(int));
    for (int i = 0; i < e->segments; i++) {
        bool here = e->segment[i].stage == t->stage;
        int position = here ? meg_mesh_find(meg_entry_mesh(e, t->direction, i), t->rank) : -1;
        t->position[i] = foreign && position >= 0 ? meg_segment_model(e, i, position) : position;
    }
}

/* Those that sit on this rank, lowered for it, or as the models are. One that no micro-batch passes
 * through still shares its weights. */
static void add_stations(const meg_plan *p, meg_entry *e, int rank, bool foreign)
{
    const meg_timetable *t = e->timetable;
    int most = t->directions * t->stages;
    e->station = calloc((size_t)most + 1, sizeof *e->station);
    if (!e->station) abort();
    for (int d = 0; d < t->directions; d++)
        for (int s = 0; s < t->stages; s++) {
            if (!meg_plan_sits(p, d, s, rank)) continue;
            meg_station *out = &e->station[e->stations++];
            *out = (meg_station){.entry = e,
                                 .stage = s,
                                 .direction = d,
                                 .rank = rank,
                                 .micros = micros_of(t, d),
                                 .frames = e->train ? meg_timetable_frames(t, d, s) : 1};
            find_positions(p, e, out, foreign);
        }
}

void meg_lower_stations(meg_plan *p, meg_entry *e, int rank, const meg_variant *how)
{
    meg_entry_clear_stations(e);
    for (int r = MEG_STEP; r < MEG_REGIONS; r++)
        e->bytes[r] = 0;
    add_stations(p, e, rank, how->foreign);
    for (int i = 0; i < e->stations; i++)
        lower_station(p, e, &e->station[i], how);
    meg_entry_place(e);
}
