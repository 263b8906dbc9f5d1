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

bool meg_wants_of(const meg_plan *p, int first, int last, meg_wanted *out)
{
    size_t batch = (size_t)p->options.batch + 1;
    bool *samples = meg_pool_alloc(p->pool, batch), *labels = meg_pool_alloc(p->pool, batch);
    *out = (meg_wanted){.of_sample = samples, .of_label = labels};
    for (int i = first; i <= last; i++) {
        const meg_entry *e = &p->entry[i];
        for (int k = 0; k < e->stations && !e->idle; k++)
            for (int v = 0; v < e->graph->values; v++) {
                meg_kind kind = e->graph->value[v].kind;
                if (kind == MEG_INPUT) add(&e->station[k], v, &out->sample, samples);
                if (kind == MEG_LABEL) add(&e->station[k], v, &out->label, labels);
            }
    }
    return !meg_box_empty(&out->sample) || !meg_box_empty(&out->label);
}

int64_t meg_wants_below(const meg_graph *g)
{
    int64_t least = 0;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        if (!v->op->looks_up || g->value[v->in[0]].kind != MEG_INPUT) continue;
        int64_t rows = meg_extent(&g->value[v->in[1]].shape, MEG_N);
        if (least == 0 || rows < least) least = rows;
    }
    return least;
}
