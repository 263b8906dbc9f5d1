/* The check of a rank's program: see program.h. Kernels of a station are gone through as for one
 * micro-batch, block after block, since frames of different micro-batches do not touch. */
#include "plan/program/program.h"

#include <stdlib.h>
#include <string.h>

typedef struct checker {
    const meg_station *e;
    meg_error *error;
    char *state; /* of each slot: 0 unwritten, 1 written, 2 freed */
} checker;

static meg_status check_operand(const checker *c, int at, int o)
{
    const meg_instr *i = &c->e->instr[at];
    int s = i->slot[o];
    const meg_slot *t = &c->e->slot[s];
    bool writes = i->written & MEG_BIT(o), first = c->state[s] == 0 && t->region != MEG_HELD;
    MEG_CHECK(c->error, c->state[s] != 2, MEG_EARG, "program %s: %d uses slot %d after its free",
              c->e->entry->name, at, s);
    MEG_CHECK(c->error, writes || !first, MEG_EARG,
              "program %s: %d reads slot %d before it is written", c->e->entry->name, at, s);
    return MEG_OK;
}

static meg_status check_instr(const checker *c, int at)
{
    const meg_instr *i = &c->e->instr[at];
    if (i->code == MEG_FREE) {
        int s = i->slot[MEG_X];
        MEG_CHECK(c->error, c->state[s] == 1 && c->e->slot[s].region >= MEG_FRAME, MEG_EARG,
                  "program %s: %d frees slot %d, which is not in use", c->e->entry->name, at, s);
        c->state[s] = 2;
        return MEG_OK;
    }
    for (int o = 0; o < MEG_OPERANDS; o++)
        if (i->slot[o] >= 0) MEG_TRY(c->error, check_operand(c, at, o));
    for (int o = 0; o < MEG_OPERANDS; o++)
        if (i->slot[o] >= 0 && i->written & MEG_BIT(o)) c->state[i->slot[o]] = 1;
    return MEG_OK;
}

static int by_birth(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    return x->born != y->born ? (x->born < y->born ? -1 : 1) : (x < y ? -1 : x > y);
}

static int by_death(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    return x->dies != y->dies ? (x->dies < y->dies ? -1 : 1) : (x < y ? -1 : x > y);
}

typedef struct
    living { /* slots by offset, of one offset by bytes; none shares a byte with another */
    int count;
    const meg_slot **at;
} living;

static bool lower(const meg_slot *a, const meg_slot *b)
{
    if (a->offset != b->offset) return a->offset < b->offset;
    return a->bytes != b->bytes ? a->bytes < b->bytes : a < b;
}

static int seat_of(const living *l, const meg_slot *s)
{
    int lo = 0, hi = l->count;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (lower(l->at[middle], s)) lo = middle + 1;
        else hi = middle;
    }
    return lo;
}

static void bury(living *l, const meg_slot *s)
{
    int at = seat_of(l, s);
    memmove(l->at + at, l->at + at + 1, (size_t)(--l->count - at) * sizeof *l->at);
}

/* Since those alive are apart, only the next ones can be in the way. */
static meg_status bear(const checker *c, living *l, const meg_slot *s)
{
    int at = seat_of(l, s);
    for (int i = at > 0 ? at - 1 : 0; i <= at && i < l->count; i++) {
        const meg_slot *o = l->at[i];
        MEG_CHECK(c->error, o->offset >= s->offset + s->bytes || s->offset >= o->offset + o->bytes,
                  MEG_EARG, "program %s: slots %d and %d overlap", c->e->entry->name,
                  (int)(s - c->e->slot), (int)(o - c->e->slot));
    }
    memmove(l->at + at + 1, l->at + at, (size_t)(l->count++ - at) * sizeof *l->at);
    l->at[at] = s;
    return MEG_OK;
}

/* Slots of a region in the order of their birth against those still alive: no two may share a byte,
 * none may end beyond `room`. */
static meg_status check_overlap(const checker *c, meg_region region, int64_t room)
{
    const meg_station *e = c->e;
    size_t most = (size_t)e->slots + 1;
    const meg_slot **born = calloc(3 * most, sizeof *born), **dies = born + most;
    if (!born) abort();
    living alive = {0, dies + most};
    int count = 0, dead = 0;
    meg_status status = MEG_OK;
    for (int i = 0; i < e->slots; i++)
        if (e->slot[i].region == region && e->slot[i].born >= 0) born[count++] = &e->slot[i];
    memcpy(dies, born, (size_t)count * sizeof *dies);
    qsort(born, (size_t)count, sizeof *born, by_birth);
    qsort(dies, (size_t)count, sizeof *dies, by_death);
    for (int i = 0; i < count && status == MEG_OK; i++) {
        const meg_slot *s = born[i];
        for (; dead < count && dies[dead]->dies < s->born; dead++)
            bury(&alive, dies[dead]);
        if (s->offset < 0 || s->offset + s->bytes > room)
            status = meg_fail(c->error, MEG_EARG, "program %s: slot %d lies outside its frame",
                              e->entry->name, (int)(s - e->slot));
        else status = bear(c, &alive, s);
    }
    free(born);
    return status;
}

/* Temporary memory is one block's. */
static meg_status check_temporary(const checker *c)
{
    for (int b = 0; b < MEG_BLOCKS; b++) {
        const meg_block *block = &c->e->block[b];
        for (int i = 0; i < c->e->slots; i++) {
            const meg_slot *s = &c->e->slot[i];
            int end = block->first + block->count;
            bool in = s->born >= block->first && s->born < end;
            MEG_CHECK(c->error, s->region != MEG_TEMPORARY || !in || s->dies < end, MEG_EARG,
                      "program %s: temporary slot %d outlives its block", c->e->entry->name, i);
        }
    }
    return MEG_OK;
}

static meg_status check_all(const checker *c)
{
    for (int i = 0; i < c->e->instrs; i++)
        MEG_TRY(c->error, check_instr(c, i));
    for (int s = 0; s < c->e->slots; s++) {
        bool used = c->e->slot[s].region >= MEG_FRAME && c->state[s] != 0;
        MEG_CHECK(c->error, !used || c->state[s] == 2, MEG_EARG,
                  "program %s: slot %d is never freed", c->e->entry->name, s);
    }
    MEG_TRY(c->error, check_temporary(c));
    MEG_TRY(c->error, check_overlap(c, MEG_FRAME, c->e->frame));
    return check_overlap(c, MEG_TEMPORARY, c->e->temporary);
}

static meg_status check_station(const meg_station *t, meg_error *error)
{
    checker c = {t, error, calloc((size_t)t->slots + 1, 1)};
    if (!c.state) abort();
    meg_status status = check_all(&c);
    free(c.state);
    return status;
}

static meg_status check_frames(const meg_entry *e, meg_error *error)
{
    int64_t at = 0;
    for (int i = 0; i < e->stations; i++) {
        const meg_station *t = &e->station[i];
        MEG_CHECK(error, t->frame_base >= at, MEG_EARG, "program %s: frames overlap", e->name);
        at = t->frame_base + (t->frames - 1) * meg_station_stride(t) + t->frame;
        MEG_CHECK(error, at <= e->bytes[MEG_FRAME] && t->temporary <= e->bytes[MEG_TEMPORARY],
                  MEG_EARG, "program %s: frames of stage %d lie outside the arena", e->name,
                  t->stage);
    }
    return MEG_OK;
}

meg_status meg_entry_check(const meg_entry *e, meg_error *error)
{
    for (int i = 0; i < e->stations; i++)
        MEG_TRY(error, check_station(&e->station[i], error));
    return check_frames(e, error);
}
