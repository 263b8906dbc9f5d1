/* Where an operand comes from: it lies at home, in the wanted format or box or another; or it is loaded,
 * gathered from its shards (zero=3), or made once more from what was kept (recomputing).
 */
#include "plan/lower/lowering.h"

#include <assert.h>
#include <string.h>

typedef struct wish {
    int value;
    meg_format format;
    int64_t bytes;
    meg_box box;
} wish;

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
    l->duplicate[l->duplicates++] = (meg_duplicate){value, slot, l->newest[value]};
    l->newest[value] = l->duplicates;
    return slot;
}

void meg_lower_forget(meg_lower *l, int count)
{
    while (l->duplicates > count) {
        const meg_duplicate *d = &l->duplicate[--l->duplicates];
        l->newest[d->value] = d->before;
    }
}

/* A copy of the value that the block has made; -1: none. */
static int find_duplicate(const meg_lower *l, int value, meg_format format, const meg_box *box)
{
    for (int i = l->newest[value]; i; i = l->duplicate[i - 1].before) {
        const meg_slot *t = &l->out->slot[l->duplicate[i - 1].slot];
        if (t->format == format && meg_box_equal(&t->box, box)) return l->duplicate[i - 1].slot;
    }
    return -1;
}

/* Values that kernels make have these tags; a weight is none. */
static int fetch(meg_lower *l, int value)
{
    meg_box all = l->out->box[value], home = meg_lower_shard_box(l, value, all);
    meg_slot s = {.role = MEG_ROLE_VALUE,
                  .value = value,
                  .box = all,
                  .dtype = meg_entry_dtype(l->entry, l->g->value[value].dtype),
                  .format = MEG_FORMAT_PLAIN,
                  .region = MEG_FRAME};
    int slot = meg_lower_slot(l, s);
    if (meg_box_empty(&home)) meg_lower_zero(l, slot); /* what is gathered counts as read */
    else meg_lower_fill(l, slot, meg_lower_shard(l, value));
    meg_lower_all_gather(
        l, slot, &l->sharers[value],
        meg_tag_of_value(l->entry, value,
                         l->block == MEG_BLOCK_FORWARD ? MEG_TAG_GATHER : MEG_TAG_GATHER_BACK));
    return slot;
}

/* Once in a block. */
static int fetched(meg_lower *l, int value)
{
    int slot = find_duplicate(l, value, MEG_FORMAT_PLAIN, &l->out->box[value]);
    return slot >= 0 ? slot : remember(l, value, fetch(l, value));
}

static void replay(meg_lower *l, int value);

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
    if (l->home[value] < 0 && (kind == MEG_INPUT || kind == MEG_LABEL)) load(l, value);
    if (l->home[value] < 0 && kind == MEG_MADE) replay(l, value);
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
    meg_lower_work(i, s);
}

/* ---- recomputing ---- */

void meg_lower_fill_halo(meg_lower *l, int value)
{
    const meg_exchange *x = l->halo[value] >= 0 ? &l->exchange[l->halo[value]] : NULL;
    for (int k = 0; x && k < x->receives; k++) {
        assert(x->came[k] >= 0);
        meg_lower_fill(l, l->home[value], x->came[k]);
    }
}

/* The aux that was kept is written once more, with the same numbers; cheap kernels can leave it out. */
static void write_aux(const meg_lower *l, meg_instr *i, const meg_node *v)
{
    meg_mask writes = meg_node_writes(v, MEG_REPLAY);
    for (int k = 0; k < v->op->auxes; k++)
        if (writes & MEG_BIT(MEG_AUX + k)) i->slot[MEG_AUX + k] = l->aux[v->id * MEG_AUXES + k];
    i->written |= writes & (MEG_BIT(MEG_AUX + MEG_AUXES) - MEG_BIT(MEG_AUX));
}

/* Its halo came when it was made first: recomputing never communicates. */
static void replay(meg_lower *l, int value)
{
    meg_spec s;
    const meg_node *v = &l->g->node[l->g->value[value].maker];
    meg_instr i = meg_lower_instr(MEG_KERNEL, v, MEG_REPLAY);
    meg_lower_describe(l, v, MEG_REPLAY, &s);
    meg_lower_reads(l, &i, v, &s);
    i.slot[MEG_Y] = l->home[value] = meg_lower_write(l, v, MEG_Y, &s);
    i.written = MEG_BIT(MEG_Y);
    if (!v->op->cheap) write_aux(l, &i, v);
    meg_lower_scratch(l, &i, &s);
    meg_lower_emit(l, &i);
    l->home[value] = meg_lower_widen(l, l->home[value], value);
    meg_lower_fill_halo(l, value);
}

void meg_lower_remake(meg_lower *l, int value)
{
    if (l->home[value] < 0) replay(l, value);
}
