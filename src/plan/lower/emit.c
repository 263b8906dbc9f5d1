/* Slots, instructions, formats: the vocabulary that forward.c and backward.c write in. */
#include "plan/lower/lower.h"

#include <string.h>

typedef struct wish {
    int value;
    meg_format format;
    int64_t bytes;
    meg_box box;
} wish;

int meg_lower_slot(meg_lower *l, meg_slot s)
{
    meg_station *e = l->out;
    e->slot = meg_grow(e->slot, &e->slot_room, (size_t)e->slots + 1, sizeof *e->slot);
    l->holders = meg_grow(l->holders, &l->holders_room, (size_t)e->slots + 1, sizeof *l->holders);
    if (s.bytes == 0) s.bytes = meg_format_bytes(s.format, &s.box, s.dtype);
    s.born = s.dies = -1;
    e->slot[e->slots] = s;
    return e->slots++;
}

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
                  .box = part ? meg_lower_home(l, value, box) : box,
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

meg_instr meg_lower_instr(meg_code code, const meg_node *v, meg_pass pass)
{
    meg_instr i = {.code = code, .pass = pass, .node = v ? v->id : -1};
    for (int o = 0; o < MEG_OPERANDS; o++)
        i.slot[o] = -1;
    return i;
}

void meg_lower_emit(meg_lower *l, const meg_instr *i)
{
    meg_instrs *list = &l->list[l->block];
    list->at = meg_grow(list->at, &list->room, (size_t)list->count + 1, sizeof *list->at);
    list->at[list->count++] = *i;
}

static void describe(meg_lower *l, const meg_instr *i, meg_spec *s)
{
    meg_request r;
    meg_station_request(l->out, i, &r);
    r.optimizer = l->plan->optimizer;
    r.settings = l->plan->settings;
    memset(s, 0, sizeof *s);
    l->plan->profile.describe(l->plan->profile.context, &r, s);
}

void meg_lower_describe(meg_lower *l, const meg_node *v, meg_pass pass, meg_spec *s)
{
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, pass);
    for (int k = 0; k < v->op->auxes; k++)
        i.slot[MEG_AUX + k] = l->aux[v->id * MEG_AUXES + k];
    describe(l, &i, s);
}

void meg_lower_price(meg_lower *l, meg_instr *i)
{
    meg_spec s;
    describe(l, i, &s);
    i->seconds = s.seconds;
    memcpy(i->impl, s.impl, sizeof i->impl);
}

int meg_lower_copy(meg_lower *l, int slot, meg_format to, int64_t bytes, const meg_node *user)
{
    meg_slot s = l->out->slot[slot];
    bool weight = meg_format_block(s.format) == 0 || meg_format_block(to) == 0;
    meg_instr i = meg_lower_instr(MEG_COPY, weight ? user : NULL, MEG_FORWARD);
    s.format = to;
    s.bytes = bytes;
    s.region = MEG_FRAME;
    s.offset = s.per_micro = 0;
    i.slot[MEG_X] = slot;
    i.slot[MEG_Y] = meg_lower_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    meg_lower_price(l, &i);
    meg_lower_emit(l, &i);
    return i.slot[MEG_Y];
}

void meg_lower_fill(meg_lower *l, int into, int slot)
{
    meg_instr i = meg_lower_instr(MEG_COPY, NULL, MEG_FORWARD);
    i.slot[MEG_X] = slot;
    i.slot[MEG_Y] = into;
    i.written = MEG_BIT(MEG_Y);
    meg_lower_price(l, &i);
    meg_lower_emit(l, &i);
}

static int new_box(meg_lower *l, int slot, const meg_box *box, meg_format to)
{
    meg_slot s = l->out->slot[slot];
    s.box = *box;
    s.format = to;
    s.bytes = 0;
    s.region = MEG_FRAME;
    s.offset = s.per_micro = 0;
    return meg_lower_slot(l, s);
}

int meg_lower_cut(meg_lower *l, int slot, const meg_box *box, meg_format to)
{
    bool inside = meg_box_holds(&l->out->slot[slot].box, box);
    int into = new_box(l, slot, box, to);
    if (!inside) meg_lower_zero(l, into);
    meg_lower_fill(l, into, slot);
    return into;
}

int meg_lower_widen(meg_lower *l, int slot, int value)
{
    const meg_box *box = &l->out->box[value];
    if (meg_box_equal(box, &l->out->slot[slot].box)) return slot;
    int into = new_box(l, slot, box, l->out->slot[slot].format);
    meg_lower_fill(l, into, slot);
    return into;
}

/* b may be a part of a; then the sum takes a's place. */
int meg_lower_add(meg_lower *l, int into, int a, int b)
{
    meg_instr i = meg_lower_instr(MEG_ADD, NULL, MEG_FORWARD);
    if (into < 0) {
        meg_slot s = l->out->slot[a];
        s.region = MEG_FRAME;
        s.offset = s.per_micro = 0;
        into = meg_lower_slot(l, s);
    }
    i.slot[MEG_X] = a;
    i.slot[MEG_X + 1] = b;
    i.slot[MEG_Y] = into;
    i.written = MEG_BIT(MEG_Y);
    meg_lower_price(l, &i);
    meg_lower_emit(l, &i);
    return into;
}

void meg_lower_zero(meg_lower *l, int slot)
{
    meg_instr i = meg_lower_instr(MEG_ZERO, NULL, MEG_FORWARD);
    i.slot[MEG_Y] = slot;
    i.written = MEG_BIT(MEG_Y);
    meg_lower_price(l, &i);
    meg_lower_emit(l, &i);
}

/* ---- operands ---- */

static void load(meg_lower *l, int value)
{
    const meg_value *x = &l->g->value[value];
    meg_instr i = meg_lower_instr(MEG_LOAD, NULL, MEG_FORWARD);
    meg_slot s = {.value = value,
                  .box = l->out->box[value],
                  .dtype = meg_entry_dtype(l->entry, x->dtype),
                  .format = MEG_FORMAT_PLAIN,
                  .region = MEG_FRAME};
    i.slot[MEG_Y] = l->home[value] = meg_lower_slot(l, s);
    i.written = MEG_BIT(MEG_Y);
    meg_lower_emit(l, &i);
}

static int remember(meg_lower *l, int value, int slot)
{
    l->duplicate = meg_grow(l->duplicate, &l->duplicate_room, (size_t)l->duplicates + 1,
                            sizeof *l->duplicate);
    l->duplicate[l->duplicates++] = (meg_duplicate){value, slot};
    return slot;
}

/* A copy of the value that the block has made; -1: none. */
static int find_duplicate(const meg_lower *l, int value, meg_format format, const meg_box *box)
{
    for (int i = 0; i < l->duplicates; i++) {
        const meg_duplicate *d = &l->duplicate[i];
        const meg_slot *t = &l->out->slot[d->slot];
        if (d->value == value && t->format == format && meg_box_equal(&t->box, box)) return d->slot;
    }
    return -1;
}

/* Once in a block. */
static int fetched(meg_lower *l, int value)
{
    int slot = find_duplicate(l, value, MEG_FORMAT_PLAIN, &l->out->box[value]);
    return slot >= 0 ? slot : remember(l, value, meg_lower_fetch(l, value));
}

int meg_lower_get(meg_lower *l, int value, meg_format format, int64_t bytes, const meg_node *user)
{
    meg_kind kind = l->g->value[value].kind;
    if (meg_lower_scattered(l, value)) {
        l->home[value] = fetched(l, value);
        l->format[value] = MEG_FORMAT_PLAIN;
    } else if (meg_kind_lasts(kind)) {
        /* segments, and unlike ranks: they need one format */
        bool several = l->read_in[value] == MEG_SEVERAL || format == MEG_FORMAT_PLAIN ||
                       l->plan->plain[value];
        l->home[value] = meg_lower_held(l, value, MEG_ROLE_VALUE, 0,
                                        several ? MEG_FORMAT_PLAIN : format, several ? 0 : bytes);
        l->format[value] = l->out->slot[l->home[value]].format;
    }
    if (l->home[value] < 0 && kind == MEG_INPUT) load(l, value);
    if (l->home[value] < 0 && kind == MEG_MADE) meg_lower_replay(l, value);
    int slot = l->home[value];
    if (l->out->slot[slot].format == format) return slot;
    int copy = find_duplicate(l, value, format, &l->out->box[value]);
    return copy >= 0 ? copy : remember(l, value, meg_lower_copy(l, slot, format, bytes, user));
}

/* Another box than the home's; a weight goes through plain format, which can be cut. */
static int get_exact(meg_lower *l, wish w, const meg_node *user)
{
    if (meg_box_equal(&w.box, &l->out->box[w.value]))
        return meg_lower_get(l, w.value, w.format, w.bytes, user);
    int copy = find_duplicate(l, w.value, w.format, &w.box);
    if (copy >= 0) return copy;
    bool weight = meg_format_block(w.format) == 0;
    meg_kind kind = l->g->value[w.value].kind;
    bool leaf = meg_kind_lasts(kind);
    int home = meg_lower_get(l, w.value, leaf ? MEG_FORMAT_PLAIN : l->format[w.value], 0, user);
    int slot = meg_lower_cut(l, home, &w.box, weight ? MEG_FORMAT_PLAIN : w.format);
    if (weight) slot = meg_lower_copy(l, slot, w.format, w.bytes, user);
    return remember(l, w.value, slot);
}

int meg_lower_piece(meg_lower *l, int value, const meg_box *box)
{
    if (meg_box_equal(box, &l->out->box[value]))
        return meg_lower_get(l, value, MEG_FORMAT_PLAIN, 0, NULL);
    return meg_lower_cut(l, l->home[value], box, MEG_FORMAT_PLAIN);
}

meg_box meg_lower_part(const meg_lower *l, int value)
{
    int segment = l->entry->segment_of[l->g->value[value].maker];
    return meg_entry_part(l->entry, value, l->out->position[segment]).work.out;
}

/* The box of an operand of a value, as the kernel wants it. */
meg_box meg_lower_box(const meg_lower *l, const meg_node *v, const meg_spec *s, int operand)
{
    meg_request r;
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, MEG_FORWARD);
    meg_station_request(l->out, &i, &r);
    return s->exact & MEG_BIT(operand) ? meg_request_exact(&r, operand) : r.box[operand];
}

static int read(meg_lower *l, const meg_node *v, const meg_spec *s, int o, int value)
{
    if (!(s->exact & MEG_BIT(o))) return meg_lower_get(l, value, s->format[o], s->bytes[o], v);
    wish w = {value, s->format[o], s->bytes[o], meg_lower_box(l, v, s, o)};
    return get_exact(l, w, v);
}

void meg_lower_reads(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s)
{
    meg_mask reads = meg_node_reads(v, i->pass);
    for (int k = 0; k < v->inputs; k++)
        if (reads & MEG_BIT(MEG_X + k)) i->slot[MEG_X + k] = read(l, v, s, MEG_X + k, v->in[k]);
    for (int k = 0; k < v->outputs; k++)
        if (reads & MEG_BIT(MEG_Y + k)) i->slot[MEG_Y + k] = read(l, v, s, MEG_Y + k, v->out[k]);
    for (int k = 0; k < v->op->auxes; k++)
        if (reads & MEG_BIT(MEG_AUX + k)) i->slot[MEG_AUX + k] = l->aux[v->id * MEG_AUXES + k];
    i->seconds = s->seconds;
    memcpy(i->impl, s->impl, sizeof i->impl);
}

void meg_lower_scratch(meg_lower *l, meg_instr *i, const meg_spec *s)
{
    if (s->bytes[MEG_SCRATCH] == 0) return;
    meg_slot t = {.role = MEG_ROLE_SCRATCH,
                  .value = i->node,
                  .dtype = MEG_U8,
                  .region = MEG_FRAME,
                  .bytes = s->bytes[MEG_SCRATCH],
                  .box = meg_box_of(1, s->bytes[MEG_SCRATCH], 1, 1, 1)};
    i->slot[MEG_SCRATCH] = meg_lower_slot(l, t);
    i->written |= MEG_BIT(MEG_SCRATCH);
}

int meg_lower_write(meg_lower *l, const meg_node *v, int o, const meg_spec *s)
{
    meg_slot t = {.region = MEG_FRAME, .format = s->format[o], .bytes = s->bytes[o]};
    if (o >= MEG_AUX && o < MEG_AUX + MEG_AUXES) {
        meg_work w = l->out->work[v->id];
        t.role = MEG_ROLE_AUX;
        t.value = v->id;
        t.index = o - MEG_AUX;
        v->op->aux(l->g, v, &w, t.index, &t.box, &t.dtype);
        t.dtype = meg_entry_dtype(l->entry, t.dtype);
        return meg_lower_slot(l, t);
    }
    bool gradient = o >= MEG_DX;
    t.role = gradient ? MEG_ROLE_GRADIENT : MEG_ROLE_VALUE;
    t.value = gradient ? v->in[o - MEG_DX] : v->out[o - MEG_Y];
    t.box = meg_lower_box(l, v, s, o);
    t.dtype = meg_entry_dtype(l->entry, l->g->value[t.value].dtype);
    return meg_lower_slot(l, t);
}
