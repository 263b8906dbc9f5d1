/* What a rank reads: see wants.h. */
#include "train/step/wants.h"
#include "graph/op.h"

#include <string.h>

/* Samples of a step that come through the station. */
static void mark(const meg_station *t, const meg_box *box, bool of[])
{
    const meg_entry *e = t->entry;
    for (int m = 0; m < e->micro; m++) {
        if (e->timetable->direction[m] != t->direction) continue;
        for (int64_t n = box->lo[MEG_N]; n < box->hi[MEG_N]; n++)
            of[m * e->graph->batch + n] = true;
    }
}

static void add(const meg_station *t, int value, meg_box *hull, bool of[])
{
    meg_box box = t->box[value];
    if (meg_box_empty(&box)) return;
    mark(t, &box, of);
    box.lo[MEG_N] = 0;
    box.hi[MEG_N] = 1;
    *hull = meg_box_hull(*hull, box);
}

int meg_wants_field(const meg_dataset *d, const meg_value *x)
{
    if (d->fields == 0) return x->kind == MEG_LABEL ? MEG_FIELD_LABEL : MEG_FIELD_SAMPLE;
    for (int i = 0; i < d->fields; i++)
        if (strcmp(d->column[i].name, x->name) == 0) return i;
    return -1;
}

/* Samples of files are floats, ids too. */
static meg_dtype type_of(const meg_plan *p, const meg_dataset *d, const meg_value *x, int field)
{
    bool whole = x->dtype == MEG_I32;
    if (d->fields == 0) return whole && x->kind == MEG_LABEL ? MEG_I32 : MEG_F32;
    bool wide = d->column[field].dtype == MEG_F64 && p->profile.real == MEG_F64;
    return whole ? MEG_I32 : wide ? MEG_F64 : MEG_F32;
}

/* The class that the losses over these labels leave out; -1: none. */
static int64_t ignored(const meg_graph *g, int value)
{
    for (int i = 0; i < g->losses; i++) {
        const meg_node *v = &g->node[g->value[g->loss[i].value].maker];
        for (const meg_param *p = v->op->params; p && p->name && v->in[1] == value; p++)
            if (strcmp(p->name, "ignore") == 0)
                return *(const int64_t *)((const char *)v->attr + p->offset);
    }
    return -1;
}

static void look_at(const meg_plan *p, int first, int last, meg_wanted *w)
{
    bool *of = meg_pool_alloc(p->pool, (size_t)p->options.batch + 1);
    w->of = of;
    for (int i = first; i <= last; i++) {
        const meg_entry *e = &p->entry[i];
        int value = e->batch ? meg_graph_find_value(e->graph, w->name) : -1;
        for (int k = 0; k < e->stations && !e->idle && value >= 0; k++)
            add(&e->station[k], value, &w->box, of);
    }
}

meg_reading meg_wants_of(const meg_plan *p, int first, int last)
{
    const meg_graph *g = p->source;
    meg_reading out = {.want = meg_pool_alloc(p->pool, ((size_t)g->values + 1) * sizeof *out.want)};
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT && x->kind != MEG_LABEL) continue;
        meg_wanted *w = &out.want[out.count++];
        *w = (meg_wanted){.name = x->name,
                          .field = -1,
                          .label = x->kind == MEG_LABEL,
                          .ids = x->kind == MEG_INPUT && x->dtype == MEG_I32,
                          .all = x->shape,
                          .below = meg_graph_kinds(g, i),
                          .ignore = ignored(g, i)};
        w->all.hi[MEG_N] = 1;
        look_at(p, first, last, w);
        out.any = out.any || !meg_box_empty(&w->box);
    }
    return out;
}

/* Of one station. */
static bool reads(const meg_station *t, int64_t n)
{
    const meg_graph *g = t->entry->graph;
    for (int v = 0; v < g->values; v++) {
        const meg_box *box = &t->box[v];
        bool leaf = g->value[v].kind == MEG_INPUT || g->value[v].kind == MEG_LABEL;
        if (leaf && !meg_graph_awaits(g, v) && !meg_box_empty(box) && box->lo[MEG_N] <= n &&
            n < box->hi[MEG_N])
            return true;
    }
    return false;
}

bool meg_wants_sample(const meg_plan *p, int entry, int64_t index)
{
    const meg_entry *e = &p->entry[entry];
    if (index < 0 || index >= e->batch || e->idle) return false;
    int64_t m = index / e->graph->batch, n = index % e->graph->batch;
    for (int k = 0; k < e->stations; k++)
        if (e->timetable->direction[m] == e->station[k].direction && reads(&e->station[k], n))
            return true;
    return false;
}

void meg_wants_bind(meg_reading *r, const meg_plan *p, const meg_dataset *d)
{
    for (int i = 0; i < r->count; i++) {
        meg_wanted *w = &r->want[i];
        const meg_value *x = &p->source->value[meg_graph_find_value(p->source, w->name)];
        w->field = meg_wants_field(d, x);
        if (w->field >= 0) w->dtype = type_of(p, d, x, w->field);
    }
}
