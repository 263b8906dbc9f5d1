/* Teams: ranks that reduce together, and the instructions with which they do. */
#include "plan/lower/lowering.h"

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

/* Positions that differ from this one along the axes of the mask alone, in these directions. */
static meg_team team_along(const meg_lower *l, int segment, const bool along[MEG_MESH_AXES],
                           bool all)
{
    const meg_entry *e = l->entry;
    const meg_mesh *mesh = meg_entry_mesh(e, 0, segment);
    int stride[MEG_MESH_AXES], own = l->out->position[segment];
    meg_team team = {0, meg_pool_alloc(l->plan->pool, (size_t)l->plan->world.ranks * sizeof(int))};
    for (int a = MEG_MESH_AXES - 1, size = 1; a >= 0; size *= mesh->dim[a--])
        stride[a] = size;
    for (int k = 0; k < mesh->size; k++) {
        bool in = true;
        for (int a = 0; a < MEG_MESH_AXES; a++)
            in = in && (along[a] || k / stride[a] % mesh->dim[a] == own / stride[a] % mesh->dim[a]);
        for (int d = 0; d < e->timetable->directions && in; d++)
            if (all || d == l->out->direction)
                add_rank(&team, meg_entry_mesh(e, d, segment)->rank[k]);
    }
    return team;
}

meg_team meg_lower_shares(const meg_lower *l, int value, bool all)
{
    bool along[MEG_MESH_AXES];
    const meg_layout *layout = &l->entry->layout[value];
    for (int a = 0; a < MEG_MESH_AXES; a++)
        along[a] = layout->on[a].how == MEG_SPLIT_PARTIAL;
    return team_along(l, l->entry->segment_of[l->g->value[value].maker], along, all);
}

meg_team meg_lower_channels(const meg_lower *l, int segment)
{
    bool along[MEG_MESH_AXES];
    for (int a = 0; a < MEG_MESH_AXES; a++)
        along[a] = a != MEG_C;
    return team_along(l, segment, along, true);
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
