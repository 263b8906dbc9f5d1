/* The engine: see engine.h. */
#include "exec/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct load { /* what a LOAD needs to know when it runs */
    const meg_engine *engine;
    const meg_entry *entry;
    const meg_slot *slot;
    const meg_feed *feed;
    int micro;
    void *to;
} load;

typedef struct compiled { /* an entry, ready to run */
    meg_prepared **kernel; /* of each instruction; NULL for LOAD and FREE */
    load *load;            /* of each line's LOADs, in order; filled as they are issued */
    int loads;
} compiled;

struct meg_engine {
    meg_plan *plan;
    meg_device *device;
    char *arena;
    int64_t base[MEG_REGIONS];
    int fill;
    compiled entry[MEG_ENTRIES];
};

/* ---- making ---- */

/* The device must answer as it did when the plan was made. */
static meg_status check_kernel(const meg_entry *entry, const meg_instr *in, const meg_spec *s,
                               meg_error *e)
{
    for (int o = 0; o < MEG_OPERANDS && in->code == MEG_KERNEL; o++) {
        if (in->slot[o] < 0 || o == MEG_DY + 1) continue; /* the second gradient is like the first */
        const meg_slot *slot = &entry->slot[in->slot[o]];
        bool format = o == MEG_SCRATCH || s->format[o] == slot->format;
        MEG_CHECK(e, format && s->bytes[o] <= slot->bytes, MEG_EUNSUPPORTED,
                  "%s: the device changed its mind about operand %d of %s", entry->name, o,
                  entry->graph->node[in->node].name);
    }
    return MEG_OK;
}

static meg_status compile(meg_engine *x, meg_error *e, int which)
{
    const meg_entry *entry = &x->plan->entry[which];
    compiled *c = &x->entry[which];
    c->kernel = calloc((size_t)entry->instrs + 1, sizeof *c->kernel);
    if (!c->kernel) return meg_fail(e, MEG_ENOMEM, "no memory for the program of %s", entry->name);
    for (int i = 0; i < entry->instrs; i++) {
        const meg_instr *in = &entry->instr[i];
        if (in->code == MEG_LOAD || in->code == MEG_FREE) continue;
        meg_request r;
        meg_entry_request(entry, in, &r);
        r.optimizer = x->plan->optimizer;
        r.settings = x->plan->settings;
        MEG_TRY(e, meg_device_prepare(x->device, e, &r, &c->kernel[i]));
        MEG_TRY(e, check_kernel(entry, in, &c->kernel[i]->spec, e));
    }
    for (int i = 0; i < entry->lines; i++) {
        const meg_block *b = &entry->block[entry->line[i].block];
        for (int k = 0; k < b->count; k++)
            c->loads += entry->instr[b->first + k].code == MEG_LOAD;
    }
    c->load = calloc((size_t)c->loads + 1, sizeof *c->load);
    return c->load ? MEG_OK : meg_fail(e, MEG_ENOMEM, "no memory for the program");
}

static meg_status build(meg_engine *x, meg_error *e)
{
    void *arena = NULL;
    MEG_TRY(e, meg_device_arena(x->device, e, x->plan->arena, x->fill, &arena));
    x->arena = arena;
    for (int r = 0; r < MEG_REGIONS; r++)
        x->base[r] = meg_plan_base(x->plan, (meg_region)r);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (x->plan->entry[i].batch) MEG_TRY(e, compile(x, e, i));
    return MEG_OK;
}

meg_status meg_engine_new(meg_plan *p, meg_device *d, meg_error *e, int fill, meg_engine **out)
{
    meg_engine *x = calloc(1, sizeof *x);
    if (!x) return meg_fail(e, MEG_ENOMEM, "no memory for an engine");
    *x = (meg_engine){.plan = p, .device = d, .fill = fill};
    meg_status status = build(x, e);
    if (status == MEG_OK)
        *out = x;
    else
        meg_engine_free(x);
    return status;
}

void meg_engine_free(meg_engine *x)
{
    if (!x) return;
    meg_device_wait(x->device);
    for (int i = 0; i < MEG_ENTRIES; i++) {
        for (int k = 0; x->entry[i].kernel && k < x->plan->entry[i].instrs; k++)
            meg_prepared_free(x->entry[i].kernel[k]);
        free(x->entry[i].kernel);
        free(x->entry[i].load);
    }
    if (x->arena) meg_device_arena_free(x->device, x->arena, x->plan->arena);
    free(x);
}

/* ---- running ---- */

static void *address(const meg_engine *x, const meg_slot *s, int micro)
{
    return x->arena + x->base[s->region] + s->offset + s->per_micro * micro;
}

/* Samples are floats, which hold ids up to 2^24 exactly. What is no whole number of 32 bits becomes
 * -1, which is no id. */
static void load_whole(int32_t *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i] >= -0x1p31f && from[i] < 0x1p31f ? (int32_t)from[i] : -1;
}

static void load_numbers(const load *l, const float *from, int64_t count)
{
    double *to = l->to;
    if (l->slot->dtype == MEG_F32) memcpy(l->to, from, (size_t)count * sizeof *from);
    if (l->slot->dtype == MEG_I32) load_whole(l->to, from, count);
    for (int64_t i = 0; l->slot->dtype == MEG_F64 && i < count; i++)
        to[i] = (double)from[i];
}

/* Runs on the device's queue. */
static void run_load(void *argument)
{
    const load *l = argument;
    const meg_slot *s = l->slot;
    int64_t count = meg_box_size(&s->box);
    if (s->role == MEG_ROLE_SCALARS) {
        memcpy(l->to, &l->feed->scalars, sizeof l->feed->scalars);
    } else if (s->role == MEG_ROLE_SEED) {
        float weight = (float)l->entry->graph->loss[s->index].weight;
        load_numbers(l, &weight, 1);
    } else if (l->entry->graph->value[s->value].kind == MEG_LABEL && s->dtype != MEG_I32) {
        load_numbers(l, l->feed->targets, count * l->entry->micro);
    } else if (l->entry->graph->value[s->value].kind == MEG_LABEL) {
        memcpy(l->to, l->feed->labels, (size_t)(s->per_micro * l->entry->micro));
    } else {
        load_numbers(l, l->feed->samples + count * l->micro, count);
    }
}

static void run_instr(meg_engine *x, int which, int at, int micro, const meg_moment *moment)
{
    const meg_entry *entry = &x->plan->entry[which];
    const meg_instr *in = &entry->instr[at];
    void *to[MEG_OPERANDS];
    for (int o = 0; o < MEG_OPERANDS; o++)
        to[o] = in->slot[o] < 0 ? NULL : address(x, &entry->slot[in->slot[o]], micro);
    if (in->code == MEG_FREE)
        meg_device_release(x->device, to[MEG_X], entry->slot[in->slot[MEG_X]].bytes);
    else
        meg_device_launch(x->device, x->entry[which].kernel[at], to, moment);
}

static void run_line(meg_engine *x, int which, const meg_line *line, const meg_feed *feed,
                     load **next)
{
    const meg_entry *entry = &x->plan->entry[which];
    const meg_block *b = &entry->block[line->block];
    meg_moment moment = {feed->seed, feed->step, entry->batch / entry->micro * line->micro};
    for (int i = b->first; i < b->first + b->count; i++) {
        const meg_instr *in = &entry->instr[i];
        if (in->code != MEG_LOAD) {
            run_instr(x, which, i, line->micro, &moment);
            continue;
        }
        const meg_slot *s = &entry->slot[in->slot[MEG_Y]];
        **next = (load){x, entry, s, feed, line->micro, address(x, s, line->micro)};
        meg_device_call(x->device, run_load, (*next)++);
    }
}

static double read_total(const meg_engine *x, const meg_entry *entry, int slot)
{
    const void *at = address(x, &entry->slot[slot], 0);
    return entry->real == MEG_F64 ? *(const double *)at : (double)*(const float *)at;
}

static bool wants_targets(const meg_graph *g)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_LABEL && g->value[i].dtype != MEG_I32) return true;
    return false;
}

meg_status meg_engine_step(meg_engine *x, meg_error *e, int which, const meg_feed *feed,
                           meg_outcome *out)
{
    const meg_entry *entry = &x->plan->entry[which];
    load *next = x->entry[which].load;
    MEG_CHECK(e, feed->targets || !wants_targets(entry->graph), MEG_EARG,
              "the loss of %s compares with real targets, but the step has none",
              entry->graph->name);
    for (int i = 0; i < entry->lines; i++)
        run_line(x, which, &entry->line[i], feed, &next);
    meg_device_wait(x->device);
    meg_outcome sum = {0, 0};
    for (int i = 0; i < entry->graph->losses; i++)
        sum.loss += entry->graph->loss[i].weight * read_total(x, entry, entry->loss[i]);
    if (entry->correct >= 0) sum.correct = read_total(x, entry, entry->correct);
    *out = sum;
    MEG_CHECK(e, isfinite(sum.loss), MEG_ENAN, "the loss is %f", sum.loss);
    return MEG_OK;
}

int64_t meg_engine_touched(const meg_engine *x)
{
    return meg_arena_touched(x->arena, x->plan->arena, x->fill);
}

const meg_graph *meg_engine_graph(const meg_engine *x)
{
    return x->plan->entry[MEG_ENTRY_TRAIN].graph;
}

meg_dtype meg_engine_real(const meg_engine *x)
{
    return x->plan->profile.real;
}

char *meg_engine_held(const meg_engine *x, int64_t offset)
{
    return x->arena + x->base[MEG_HELD] + offset;
}

meg_device *meg_engine_device(const meg_engine *x)
{
    return x->device;
}

meg_plan *meg_engine_plan(const meg_engine *x)
{
    return x->plan;
}
