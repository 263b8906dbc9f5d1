/* What goes from stage to stage, straight from the one that makes a value to each that reads it,
 * however far apart they are:
 *
 *     stage 0      1      2           forward: x to 1 and to 2
 *           x ---> x
 *           x -----------> x          backward: dx from 2 and from 1, added in that order
 *
 * Values travel in plain format, so that sender and receiver need not agree on another. Receives
 * stand at the head of their block: the engine posts them ahead of their use.
 */
#include "plan/lower.h"

#include <stdlib.h>

/* ---- teams ---- */

static void add_rank(meg_team *t, int rank)
{
    for (int i = 0; i < t->count; i++)
        if (t->rank[i] == rank) return;
    t->rank[t->count++] = rank;
    for (int i = t->count - 1; i > 0 && t->rank[i] < t->rank[i - 1]; i--) {
        int swap = t->rank[i];
        t->rank[i] = t->rank[i - 1];
        t->rank[i - 1] = swap;
    }
}

/* All replicas' ranks that have one of the stages, in this direction (-1: in any). */
meg_team meg_plan_team(const meg_plan *p, const meg_entry *e, int direction, const bool stages[])
{
    const meg_timetable *t = e->timetable;
    meg_team team = {0, meg_pool_alloc(p->pool, (size_t)p->world.ranks * sizeof(int))};
    for (int r = 0; r < p->replicas; r++)
        for (int d = 0; d < t->directions; d++)
            for (int s = 0; s < t->stages; s++)
                if (stages[s] && (direction < 0 || direction == d))
                    add_rank(&team, r * p->seats + meg_timetable_seat(t, d, s));
    return team;
}

meg_team meg_lower_team(const meg_lower *l, int direction)
{
    return l->team[direction + 1];
}

static int team_id(meg_entry *e, const meg_team *team)
{
    for (int i = 0; i < e->teams; i++) {
        bool same = e->team[i].count == team->count;
        for (int k = 0; same && k < team->count; k++)
            same = e->team[i].rank[k] == team->rank[k];
        if (same) return i;
    }
    e->team = meg_grow(e->team, &e->team_room, (size_t)e->teams + 1, sizeof *e->team);
    e->team[e->teams] = *team;
    return e->teams++;
}

meg_instr meg_lower_reduce(meg_lower *l, int slot, const meg_team *team, int tag)
{
    meg_instr i = meg_lower_instr(MEG_REDUCE, NULL, MEG_FORWARD);
    i.slot[MEG_X] = i.slot[MEG_Y] = slot;
    i.written = MEG_BIT(MEG_Y);
    i.peer = team_id(&l->plan->entry[l->entry - l->plan->entry], team);
    i.tag = tag;
    int64_t most = (int64_t)MEG_REDUCE_PIECE * MEG_REDUCE_PIECES, bytes = l->out->slot[slot].bytes;
    meg_slot scratch = {.role = MEG_ROLE_SCRATCH,
                        .value = -1,
                        .dtype = MEG_U8,
                        .bytes = bytes < most ? bytes : most};
    scratch.box = meg_box_of(1, scratch.bytes, 1, 1, 1);
    i.slot[MEG_SCRATCH] = meg_lower_step_slot(l, scratch);
    i.written |= MEG_BIT(MEG_SCRATCH);
    return i;
}

/* ---- crossings ---- */

static int by_value(const void *a, const void *b)
{
    const meg_passage *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? -1 : 1) : x->to - y->to;
}

/* Two readers in one stage: one message. */
static void unite(meg_lower *l)
{
    int kept = 0;
    for (int i = 0; i < l->crossings; i++) {
        meg_passage *last = kept ? &l->crossing[kept - 1] : NULL;
        if (last && by_value(last, &l->crossing[i]) == 0) last->back |= l->crossing[i].back;
        else l->crossing[kept++] = l->crossing[i];
    }
    l->crossings = kept;
    for (int i = 0; i < kept; i++)
        l->crossing[i].tag = i < MEG_TAG_VALUE / l->entry->micro / 2 ? 2 * i * l->entry->micro
                                                                     : MEG_TAG_VALUE; /* refused */
    for (int i = 0; i < kept; i++)
        if (l->crossing[i].from == l->out->stage) l->goes[l->crossing[i].value] = true;
}

void meg_lower_crossings(meg_lower *l)
{
    const meg_graph *g = l->g;
    const int *stage = l->entry->stage;
    size_t most = (size_t)g->nodes * MEG_INPUTS + 1;
    l->crossing = meg_pool_alloc(l->pool, most * sizeof *l->crossing);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++) {
            int x = g->node[i].in[k], maker = g->value[x].maker;
            if (maker < 0 || stage[maker] == stage[i]) continue;
            l->crossing[l->crossings++] = (meg_passage){x, stage[maker], stage[i],
                                                        meg_lower_gives(l, &g->node[i], x), 0};
        }
    qsort(l->crossing, (size_t)l->crossings, sizeof *l->crossing, by_value);
    unite(l);
    l->coming = meg_pool_alloc(l->pool, ((size_t)l->crossings + 1) * sizeof(int));
    for (int i = 0; i < l->crossings; i++)
        l->coming[i] = -1;
}

static int rank_of(const meg_lower *l, int stage)
{
    const meg_plan *p = l->plan;
    return p->replica * p->seats +
           meg_timetable_seat(l->entry->timetable, l->out->direction, stage);
}

static int received(meg_lower *l, int value, meg_role role, int peer, int tag)
{
    meg_instr i = meg_lower_instr(MEG_RECV, NULL, MEG_FORWARD);
    meg_slot s = {.role = role,
                  .value = value,
                  .box = meg_entry_box(l->entry, value),
                  .dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype),
                  .format = MEG_FORMAT_PLAIN,
                  .region = MEG_FRAME};
    i.slot[MEG_Y] = meg_lower_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    i.peer = peer;
    i.tag = tag;
    meg_lower_emit(l, &i);
    return i.slot[MEG_Y];
}

static void send(meg_lower *l, int slot, int peer, int tag)
{
    meg_instr i = meg_lower_instr(MEG_SEND, NULL, MEG_FORWARD);
    i.slot[MEG_X] = slot;
    i.peer = peer;
    i.tag = tag;
    meg_lower_emit(l, &i);
}

void meg_lower_receive(meg_lower *l)
{
    for (int i = 0; i < l->crossings; i++) {
        const meg_passage *c = &l->crossing[i];
        if (c->to != l->out->stage) continue;
        l->home[c->value] = received(l, c->value, MEG_ROLE_VALUE, rank_of(l, c->from), c->tag);
        l->format[c->value] = MEG_FORMAT_PLAIN;
    }
}

void meg_lower_send(meg_lower *l, const meg_node *v)
{
    for (int i = 0; i < l->crossings; i++) {
        const meg_passage *c = &l->crossing[i];
        if (c->from != l->out->stage || l->g->value[c->value].maker != v->id) continue;
        int slot = meg_lower_get(l, c->value, MEG_FORMAT_PLAIN, 0, v);
        send(l, slot, rank_of(l, c->to), c->tag);
    }
}

void meg_lower_receive_back(meg_lower *l)
{
    for (int i = l->crossings - 1; i >= 0; i--) {
        const meg_passage *c = &l->crossing[i];
        if (c->from != l->out->stage || !c->back) continue;
        l->coming[i] = received(l, c->value, MEG_ROLE_GRADIENT, rank_of(l, c->to),
                                c->tag + l->entry->micro);
    }
}

/* The first of the station's nodes that reads the value is the last to contribute. */
void meg_lower_send_back(meg_lower *l, const meg_node *v)
{
    for (int i = 0; i < l->crossings; i++) {
        const meg_passage *c = &l->crossing[i];
        if (c->to != l->out->stage || !c->back || l->reader[c->value] != v->id) continue;
        meg_lower_gather(l, c->value, 1);
        meg_parts *p = &l->parts[c->value];
        send(l, p->slot[0], rank_of(l, c->from), c->tag + l->entry->micro);
        p->count = 0;
    }
}
