/* Held memory: what of weights, gradients and optimizer states the rank keeps from step to step. Of what
 * ranks share it may be the whole or an even shard along the first axis (zero=; shards.c).
 */
#include "plan/lower/lowering.h"

/* ---- shards ---- */

static bool shared(const meg_lower *l, int value)
{
    return l->g->value[value].kind == MEG_PARAMETER && l->sharers[value].count > 1;
}

/* Does anything look at all of the weight before the first forward? */
static bool read_first(const meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++)
        if (l->g->node[e->reader[i]].op->state_first) return true;
    return false;
}

/* The same in all entries, since held memory is: evaluation has one direction always. */
bool meg_lower_scattered(const meg_lower *l, int value)
{
    return l->plan->options.zero == MEG_ZERO_ALL && shared(l, value) &&
           l->read_in[value] != MEG_SEVERAL && !read_first(l, value) &&
           l->plan->entry[MEG_ENTRY_TRAIN].timetable->directions == 1;
}

/* An optimizer without states leaves nothing to cut but the weight itself. */
bool meg_lower_parted(const meg_lower *l, int value)
{
    const meg_plan *p = l->plan;
    bool states = meg_optimizer_states(p->optimizer, p->settings) > 0;
    return p->options.zero != MEG_ZERO_NOTHING && shared(l, value) &&
           (states || meg_lower_scattered(l, value));
}

/* An even part along the first axis that can be cut, so that it lies in one piece; it may be empty. */
meg_box meg_lower_shard_box(const meg_lower *l, int value, meg_box box)
{
    const meg_team *team = &l->sharers[value];
    int axis = meg_shard_axis(&box), own = 0;
    while (own < team->count - 1 && team->rank[own] != l->plan->world.rank)
        own++;
    int64_t lo = box.lo[axis], extent = meg_extent(&box, axis);
    box.lo[axis] = lo + extent * own / team->count;
    box.hi[axis] = lo + extent * (own + 1) / team->count;
    return box;
}

/* ---- slots ---- */

static int key_of(meg_role role, int index)
{
    return role == MEG_ROLE_VALUE ? 0 : role == MEG_ROLE_GRADIENT ? 1 : 2 + index;
}

static meg_held_slot *add_held(meg_plan *p, meg_held_slot h)
{
    p->held_at[h.value * MEG_HELD_KEYS + key_of(h.role, h.index)] = p->held_slots + 1;
    p->held = meg_grow(p->held, &p->held_room, (size_t)p->held_slots + 1, sizeof *p->held);
    h.offset = meg_aligned(p->bytes[MEG_HELD]);
    p->bytes[MEG_HELD] = h.offset + h.bytes;
    p->held[p->held_slots] = h;
    return &p->held[p->held_slots++];
}

int meg_lower_held(meg_lower *l, int value, meg_role role, int index, meg_format format,
                   int64_t bytes)
{
    const meg_value *x = &l->g->value[value];
    bool part = role == MEG_ROLE_STATE ? meg_lower_parted(l, value) : meg_lower_scattered(l, value);
    meg_box box = l->out->box[value];
    meg_slot s = {.role = role,
                  .value = value,
                  .index = index,
                  .box = part ? meg_lower_shard_box(l, value, box) : box,
                  .dtype = meg_entry_dtype(l->entry, x->dtype),
                  .region = MEG_HELD};
    int *known = &l->held[value * MEG_HELD_KEYS + key_of(role, index)];
    if (*known >= 0) return *known;
    if (l->odd[value] || meg_lower_parted(l, value)) format = MEG_FORMAT_PLAIN, bytes = 0;
    if (bytes == 0) bytes = meg_format_bytes(format, &s.box, s.dtype);
    int at = l->plan->held_at[value * MEG_HELD_KEYS + key_of(role, index)];
    if (l->foreign && (l->odd[value] || role != MEG_ROLE_VALUE || x->kind == MEG_STATE)) {
        /* only looked at */
        s.format = format;
        s.bytes = bytes;
        return *known = meg_lower_slot(l, s);
    }
    meg_held_slot *h = at ? &l->plan->held[at - 1] : NULL;
    if (!h) h = add_held(l->plan, (meg_held_slot){value, role, index, s.box, format, 0, bytes});
    s.format = h->format;
    s.bytes = h->bytes;
    s.offset = h->offset;
    return *known = meg_lower_slot(l, s);
}

/* Those that `foreign` only looks at do not count. */
bool meg_lower_all_held(const meg_lower *l)
{
    for (int i = 0; i < l->g->nodes; i++)
        for (int k = 0; k < l->g->node[i].inputs && l->mine[i]; k++) {
            int x = l->g->node[i].in[k];
            meg_kind kind = l->g->value[x].kind;
            bool counts = meg_kind_lasts(kind) && kind != MEG_STATE && !l->odd[x];
            if (counts && !l->plan->held_at[x * MEG_HELD_KEYS + key_of(MEG_ROLE_VALUE, 0)])
                return false;
        }
    return true;
}

int meg_lower_shard(meg_lower *l, int value)
{
    return meg_lower_held(l, value, MEG_ROLE_VALUE, 0, MEG_FORMAT_PLAIN, 0);
}
