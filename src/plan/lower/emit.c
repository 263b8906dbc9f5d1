/* Slots and instructions: the vocabulary that all other parts write in. */
#include "machine/prices.h"
#include "plan/lower/lowering.h"

#include <string.h>

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

int meg_lower_step_slot(meg_lower *l, meg_slot s)
{
    int64_t all = s.per_micro ? s.per_micro * l->out->micros : 0;
    int64_t *bytes = &l->plan->entry[l->entry - l->plan->entry].bytes[MEG_STEP];
    s.region = MEG_STEP;
    s.offset = meg_aligned(*bytes);
    int id = meg_lower_slot(l, s);
    *bytes = s.offset + (all ? all : l->out->slot[id].bytes);
    return id;
}

meg_instr meg_lower_instr(meg_code code, const meg_node *v, meg_pass pass)
{
    meg_instr i = {.code = code, .pass = pass, .node = v ? v->id : -1};
    for (int o = 0; o < MEG_OPERANDS; o++)
        i.slot[o] = -1;
    return i;
}

/* Samples and labels are copied into their slot by the device's worker. */
static double load_seconds(const meg_lower *l, const meg_instr *i)
{
    double bytes = (double)l->out->slot[i->slot[MEG_Y]].bytes;
    return meg_prices_seconds(
        l->plan->profile.prices,
        &(meg_price_query){.key = "", .family = "load", .impl = "own", .traffic = 2 * bytes});
}

/* All its operands are known here, as they will be when the kernel is prepared and measured: prices are
 * found by them. */
static double seconds(meg_lower *l, const meg_instr *i)
{
    meg_request r;
    if (i->code == MEG_LOAD) return load_seconds(l, i);
    if (!i->impl[0]) return 0;
    meg_station_request(l->out, i, &r);
    r.optimizer = l->plan->optimizer;
    r.settings = l->plan->settings;
    return meg_request_seconds(&r, &(meg_kernel_work){i->flops, i->traffic, i->impl},
                               l->plan->profile.prices);
}

void meg_lower_emit(meg_lower *l, const meg_instr *i)
{
    meg_instrs *list = &l->list[l->block];
    list->at = meg_grow(list->at, &list->room, (size_t)list->count + 1, sizeof *list->at);
    list->at[list->count] = *i;
    list->at[list->count++].seconds = l->foreign ? 0 : seconds(l, i); /* nobody runs those */
}

void meg_lower_work(meg_instr *i, const meg_spec *s)
{
    i->flops = s->flops;
    i->traffic = s->traffic;
    memcpy(i->impl, s->impl, sizeof i->impl);
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
    meg_lower_work(i, &s);
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

/* ---- operands of a kernel ---- */

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
