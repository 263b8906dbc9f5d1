/* Teams: ranks that reduce together, and the instructions with which they do. */
#include "plan/lower/lowering.h"

#include <stdlib.h>
#include <string.h>

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* Ascending, each once. */
static void put_in_order(meg_team *t)
{
    int kept = 0;
    qsort(t->rank, (size_t)t->count, sizeof *t->rank, by_rank);
    for (int i = 0; i < t->count; i++)
        if (kept == 0 || t->rank[kept - 1] != t->rank[i]) t->rank[kept++] = t->rank[i];
    t->count = kept;
}

/* ---- along axes of a mesh ---- */

/* The ranks of all positions that differ from `position` from this axis on, along the mask's alone. */
static void collect(const meg_mesh *mesh, int axis, const meg_along_key *key, int position,
                    meg_team *team)
{
    int stride = 1;
    if (axis == MEG_MESH_AXES) {
        team->rank[team->count++] = mesh->rank[position];
        return;
    }
    for (int a = axis + 1; a < MEG_MESH_AXES; a++)
        stride *= mesh->dim[a];
    int own = position / stride % mesh->dim[axis], first = position - own * stride;
    bool along = key->axes & 1 << axis;
    for (int k = along ? 0 : own; k < (along ? mesh->dim[axis] : own + 1); k++)
        collect(mesh, axis + 1, key, first + k * stride, team);
}

static meg_team make_team(const meg_lower *l, const meg_along_key *key)
{
    const meg_entry *e = l->entry;
    int count = e->timetable->directions;
    for (int a = 0; a < MEG_MESH_AXES; a++)
        if (key->axes & 1 << a) count *= meg_entry_mesh(e, 0, key->segment)->dim[a];
    meg_team team = {.rank = meg_pool_alloc(l->plan->lowered, (size_t)count * sizeof(int)),
                     .segment = key->segment,
                     .axes = key->axes,
                     .way = key->all ? MEG_WAYS : l->out->direction,
                     .value = -1};
    for (int d = 0; d < e->timetable->directions; d++)
        if (key->all || d == l->out->direction)
            collect(meg_entry_mesh(e, d, key->segment), 0, key, l->out->position[key->segment],
                    &team);
    put_in_order(&team);
    return team;
}

/* Positions that differ from this one along the axes of the mask alone, in these directions. Many values
 * have the same team: it is made once. */
static meg_team team_along(meg_lower *l, meg_along_key key)
{
    for (int i = 0; i < l->alongs; i++) {
        const meg_along_key *k = &l->along[i].key;
        if (k->segment == key.segment && k->axes == key.axes && k->all == key.all)
            return l->along[i].team;
    }
    l->along = meg_grow(l->along, &l->along_room, (size_t)l->alongs + 1, sizeof *l->along);
    l->along[l->alongs].key = key;
    l->along[l->alongs].team = make_team(l, &key);
    return l->along[l->alongs++].team;
}

meg_team meg_lower_shares(meg_lower *l, int value, bool all)
{
    const meg_layout *layout = &l->entry->layout[value];
    meg_along_key key = {.segment = l->entry->segment_of[l->g->value[value].maker], .all = all};
    for (int a = 0; a < MEG_MESH_AXES; a++)
        if (layout->on[a].how == MEG_SPLIT_PARTIAL) key.axes |= 1 << a;
    return team_along(l, key);
}

meg_team meg_lower_channels(meg_lower *l, int segment)
{
    int all = (1 << MEG_MESH_AXES) - 1;
    return team_along(l, (meg_along_key){segment, all & ~(1 << MEG_C), true});
}

/* ---- everywhere in a replica ---- */

meg_team meg_lower_everywhere(meg_lower *l, int value, const int local[], int count)
{
    const meg_plan *p = l->plan;
    for (int i = 0; i < l->locals; i++)
        if (l->local[i].count == count &&
            memcmp(l->local[i].at, local, (size_t)count * sizeof *local) == 0)
            return l->local[i].team;
    meg_team team = {.segment = -1, .way = MEG_WAYS, .value = value};
    team.rank = meg_pool_alloc(p->lowered, ((size_t)(p->replicas * count) + 1) * sizeof(int));
    for (int r = 0; r < p->replicas; r++)
        for (int i = 0; i < count; i++)
            team.rank[team.count++] = r * p->each + local[i];
    int *at = meg_pool_alloc(l->pool, ((size_t)count + 1) * sizeof *at);
    memcpy(at, local, (size_t)count * sizeof *at);
    l->local = meg_grow(l->local, &l->local_room, (size_t)l->locals + 1, sizeof *l->local);
    l->local[l->locals].count = count;
    l->local[l->locals].at = at;
    l->local[l->locals].team = team;
    return l->local[l->locals++].team;
}

/* ---- instructions ---- */

bool meg_lower_same_team(const meg_team *a, const meg_team *b)
{
    if (a->count != b->count) return false;
    return a->rank == b->rank || memcmp(a->rank, b->rank, (size_t)a->count * sizeof(int)) == 0;
}

static int team_id(meg_entry *e, const meg_team *team)
{
    for (int i = 0; i < e->teams; i++)
        if (meg_lower_same_team(&e->team[i], team)) return i;
    e->team = meg_grow(e->team, &e->team_room, (size_t)e->teams + 1, sizeof *e->team);
    e->team[e->teams] = *team;
    return e->teams++;
}

int meg_lower_reduce_scratch(meg_lower *l, int64_t bytes)
{
    int64_t most = (int64_t)MEG_REDUCE_PIECE * MEG_REDUCE_PIECES;
    meg_slot scratch = {.role = MEG_ROLE_SCRATCH,
                        .value = -1,
                        .dtype = MEG_U8,
                        .bytes = bytes < most ? bytes : most};
    scratch.box = meg_box_of(1, scratch.bytes, 1, 1, 1);
    return meg_lower_step_slot(l, scratch);
}

meg_instr meg_lower_reduce_in(meg_lower *l, int slot, int scratch, const meg_team *team, int tag)
{
    meg_instr i = meg_lower_instr(MEG_REDUCE, NULL, MEG_FORWARD);
    i.slot[MEG_X] = i.slot[MEG_Y] = slot;
    i.slot[MEG_SCRATCH] = scratch;
    i.written = MEG_BIT(MEG_Y) | MEG_BIT(MEG_SCRATCH);
    i.peer = team_id(&l->plan->entry[l->entry - l->plan->entry], team);
    i.tag = tag;
    return i;
}

meg_instr meg_lower_reduce(meg_lower *l, int slot, const meg_team *team, int tag)
{
    int scratch = meg_lower_reduce_scratch(l, l->out->slot[slot].bytes);
    return meg_lower_reduce_in(l, slot, scratch, team, tag);
}

void meg_lower_all_gather(meg_lower *l, int slot, const meg_team *team, int tag)
{
    meg_instr r = meg_lower_reduce_in(l, slot, -1, team, tag);
    r.half = MEG_HALF_GATHER;
    meg_lower_emit(l, &r);
}
