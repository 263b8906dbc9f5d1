/* Making an entry ready to run: see compile.h. */
#include "exec/compile.h"
#include "plan/program/walk.h"

#include <stdlib.h>
#include <string.h>

/* The device must answer as it did when the plan was made. */
static meg_status check_kernel(const meg_station *t, const meg_instr *in, const meg_spec *s,
                               meg_error *e)
{
    for (int o = 0; o < MEG_OPERANDS && in->code == MEG_KERNEL; o++) {
        if (in->slot[o] < 0 || o == MEG_DY + 1)
            continue; /* the second gradient is like the first */
        const meg_slot *slot = &t->slot[in->slot[o]];
        bool format = o == MEG_SCRATCH || s->format[o] == slot->format;
        MEG_CHECK(e, format && s->bytes[o] <= slot->bytes, MEG_EUNSUPPORTED,
                  "%s: the device changed its mind about operand %d of %s", t->entry->name, o,
                  t->entry->graph->node[in->node].name);
    }
    return MEG_OK;
}

static bool is_kernel(const meg_instr *in)
{
    return in->code == MEG_KERNEL || in->code == MEG_COPY || in->code == MEG_ADD ||
           in->code == MEG_ZERO || in->code == MEG_UPDATE;
}

static meg_status prepare_station(meg_compiled *c, meg_error *e, const meg_plan *p, int number,
                                  meg_device *d)
{
    const meg_station *t = &c->entry->station[number];
    meg_prepared **kernel = calloc((size_t)t->instrs + 1, sizeof(meg_prepared *));
    meg_frame_use *frame = calloc((size_t)t->frames + 1, sizeof(meg_frame_use));
    c->kernel[number] = kernel;
    c->frame[number] = frame;
    if (!kernel || !frame)
        return meg_fail(e, MEG_ENOMEM, "no memory for the program of %s", c->entry->name);
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *in = &t->instr[i];
        if (!is_kernel(in)) continue;
        meg_request r;
        meg_station_request(t, in, &r);
        r.optimizer = p->optimizer;
        r.settings = p->settings;
        MEG_TRY(e, meg_device_prepare(d, e, &r, &kernel[i]));
        MEG_TRY(e, check_kernel(t, in, &kernel[i]->spec, e));
    }
    return MEG_OK;
}

static void add_total(meg_compiled *c, const meg_plan *p, const meg_station *t, meg_total total,
                      int slot)
{
    if (slot < 0) return; /* another station's */
    total.at = meg_slot_place(p, t, &t->slot[slot], &(meg_line){0});
    c->total[c->totals++] = total;
}

static meg_status find_totals(meg_compiled *c, meg_error *e, const meg_plan *p)
{
    const meg_entry *entry = c->entry;
    int losses = entry->graph->losses;
    c->total = calloc((size_t)(entry->stations * (losses + 1)) + 1, sizeof *c->total);
    if (!c->total) return meg_fail(e, MEG_ENOMEM, "no memory for the losses of %s", entry->name);
    for (int i = 0; i < entry->stations; i++) {
        const meg_station *t = &entry->station[i];
        for (int k = 0; k < losses; k++)
            add_total(c, p, t, (meg_total){.weight = entry->graph->loss[k].weight}, t->loss[k]);
        add_total(c, p, t, (meg_total){.weight = 1, .sum = 1}, t->correct);
    }
    return MEG_OK;
}

static meg_status find_groups(meg_compiled *c, meg_error *e, const int node[])
{
    const meg_entry *entry = c->entry;
    c->groups = calloc((size_t)entry->teams + 1, sizeof(meg_topology *));
    if (!c->groups) return meg_fail(e, MEG_ENOMEM, "no memory for the teams of %s", entry->name);
    for (int i = 0; i < entry->teams; i++) {
        const meg_team *team = &entry->team[i];
        int *on = calloc((size_t)team->count, sizeof *on);
        if (!on) return meg_fail(e, MEG_ENOMEM, "no memory for a team of %d ranks", team->count);
        for (int k = 0; k < team->count; k++)
            on[k] = node[team->rank[k]];
        c->groups[i] = meg_topology_new(team->count, on);
        free(on);
    }
    return MEG_OK;
}

static void find_loads(meg_compiled *c)
{
    for (int i = 0; i < c->entry->stations; i++) {
        const meg_station *t = &c->entry->station[i];
        for (int k = 0; k < t->instrs; k++) {
            const meg_slot *s = t->instr[k].code == MEG_LOAD ? &t->slot[t->instr[k].slot[MEG_Y]]
                                                             : NULL;
            if (s && s->role == MEG_ROLE_VALUE) c->loads[s->value] = true;
        }
    }
}

meg_status meg_compiled_feed(meg_compiled *c, meg_error *e, const meg_feed *feed)
{
    const meg_graph *g = c->entry->graph;
    for (int i = 0; i < g->values; i++) {
        c->fed[i] = NULL;
        for (int k = 0; k < feed->count && c->loads[i]; k++)
            if (strcmp(feed->fed[k].name, g->value[i].name) == 0) c->fed[i] = &feed->fed[k];
        MEG_CHECK(e, !c->loads[i] || (c->fed[i] && c->fed[i]->data), MEG_EARG,
                  "%s reads '%s', but the step has no numbers for it", g->name, g->value[i].name);
        bool whole = g->value[i].dtype == MEG_I32;
        meg_dtype type = c->loads[i] ? c->fed[i]->dtype : MEG_F32;
        MEG_CHECK(e, type == MEG_F32 || type == (whole ? MEG_I32 : MEG_F64), MEG_EARG,
                  "'%s' of %s takes %s numbers, but the step has them as %s", g->value[i].name,
                  g->name, whole ? "whole" : "real", meg_dtype_name(type));
    }
    return MEG_OK;
}

meg_status meg_compile(meg_compiled *c, meg_error *e, const meg_plan *p, int which,
                       const meg_site *site)
{
    const meg_entry *entry = &p->entry[which];
    size_t stations = (size_t)entry->stations + 1;
    c->entry = entry;
    c->allreduce = meg_allreduce_find(p->options.allreduce);
    c->kernel = calloc(stations, sizeof *c->kernel);
    c->frame = calloc(stations, sizeof *c->frame);
    c->load = calloc(meg_entry_count(entry, MEG_LOAD) + 1, sizeof *c->load);
    c->loads = calloc((size_t)entry->graph->values + 1, sizeof *c->loads);
    c->fed = calloc((size_t)entry->graph->values + 1, sizeof *c->fed);
    c->reduction = calloc(meg_entry_count(entry, MEG_REDUCE) + 1, sizeof *c->reduction);
    if (!c->kernel || !c->frame || !c->load || !c->loads || !c->fed || !c->reduction)
        return meg_fail(e, MEG_ENOMEM, "no memory for the program of %s", entry->name);
    find_loads(c);
    MEG_TRY(e, find_totals(c, e, p));
    MEG_TRY(e, find_groups(c, e, meg_comm_node(site->comm)));
    for (int i = 0; i < entry->stations; i++)
        MEG_TRY(e, prepare_station(c, e, p, i, site->device));
    return MEG_OK;
}

void meg_compiled_clear(meg_compiled *c)
{
    for (int i = 0; c->kernel && i < c->entry->stations; i++) {
        for (int k = 0; c->kernel[i] && k < c->entry->station[i].instrs; k++)
            meg_prepared_free(c->kernel[i][k]);
        free(c->kernel[i]);
        free(c->frame[i]);
    }
    for (int i = 0; c->groups && i < c->entry->teams; i++)
        meg_topology_free(c->groups[i]);
    free(c->groups);
    free(c->kernel);
    free(c->frame);
    free(c->load);
    free(c->loads);
    free(c->fed);
    free(c->reduction);
    free(c->total);
    memset(c, 0, sizeof *c);
}

const meg_prepared *meg_compiled_kernel(const meg_compiled *c, const meg_station *t, int instr)
{
    return c->kernel[t - c->entry->station][instr];
}

meg_frame_use *meg_compiled_frame(const meg_compiled *c, const meg_station *t, int frame)
{
    return &c->frame[t - c->entry->station][frame];
}

meg_reduction_spec meg_compiled_reduction(const meg_compiled *c, const meg_team *team,
                                          const meg_instr *in, const meg_slot *slot)
{
    static const meg_number number[] = {
        [MEG_F32] = MEG_NUMBER_F32, [MEG_F64] = MEG_NUMBER_F64, [MEG_I32] = MEG_NUMBER_I32};
    const meg_allreduce_kind *const algorithm[] = {c->allreduce, &meg_ring_scatter,
                                                   &meg_ring_gather};
    return (meg_reduction_spec){
        .algorithm = algorithm[in->half],
        .rows = in->half ? meg_extent(&slot->box, meg_shard_axis(&slot->box)) : 0,
        .ranks = team->count,
        .rank = team->rank,
        .groups = c->groups[in->peer],
        .data = {NULL, slot->bytes / meg_dtype_bytes(slot->dtype), number[slot->dtype]},
        .combine = in->max ? MEG_COMBINE_MAX : MEG_COMBINE_SUM,
        .tag = in->tag,
        .piece = MEG_REDUCE_PIECE};
}

/* ---- loads ---- */

/* Floats hold ids up to 2^24 exactly. What is no whole number of 32 bits becomes -1, which is no id. */
static void load_whole(int32_t *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i] >= -0x1p31f && from[i] < 0x1p31f ? (int32_t)from[i] : -1;
}

static void widen(double *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

static void narrow(float *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)from[i];
}

static void load_numbers(meg_dtype type, void *to, const meg_fed *f, int64_t first, int64_t count)
{
    const char *from = (const char *)f->data + first * meg_dtype_bytes(f->dtype);
    if (f->dtype == type) memcpy(to, from, (size_t)(count * meg_dtype_bytes(type)));
    else if (f->dtype == MEG_F64) narrow(to, (const double *)from, count);
    else if (type == MEG_F64) widen(to, (const float *)from, count);
    else load_whole(to, (const float *)from, count);
}

/* The rank's box of a micro-batch, out of what the feed has of the whole batch. */
static void load_box(const meg_load *l, int micro, char *to)
{
    const meg_value *x = &l->entry->graph->value[l->slot->value];
    const meg_box *box = &l->slot->box, *has = &l->fed->box;
    meg_box starts, all = x->shape;
    for (int a = MEG_C; a < MEG_AXES && !meg_box_empty(has); a++)
        all.lo[a] = has->lo[a], all.hi[a] = has->hi[a];
    int64_t p[MEG_AXES], run = meg_box_runs(&all, box, &starts);
    int64_t first = meg_box_size(&all) * micro, each = meg_dtype_bytes(l->slot->dtype);
    for (bool on = meg_box_first(&starts, p); on; on = meg_box_next(&starts, p))
        load_numbers(l->slot->dtype, to + meg_box_at(box, p) * each, l->fed,
                     first + meg_box_at(&all, p), run);
}

/* Labels of all micro-batches that come through the station. */
static void load_labels(const meg_load *l, char *to)
{
    const meg_timetable *t = l->entry->timetable;
    for (int m = 0; m < t->micro; m++) {
        if (t->direction[m] != l->station->direction) continue;
        load_box(l, m, to);
        to += l->slot->per_micro;
    }
}

void meg_load_run(void *load, void *to)
{
    const meg_load *l = load;
    const meg_slot *s = l->slot;
    if (s->role == MEG_ROLE_SCALARS) {
        memcpy(to, &l->feed->scalars, sizeof l->feed->scalars);
    } else if (s->role == MEG_ROLE_SEED) {
        double weight = l->entry->graph->loss[s->index].weight;
        if (s->dtype == MEG_F64) *(double *)to = weight;
        else *(float *)to = (float)weight;
    } else if (s->per_micro) {
        load_labels(l, to);
    } else {
        load_box(l, l->micro, to);
    }
}
