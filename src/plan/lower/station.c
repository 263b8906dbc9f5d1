/* What a station makes and holds of every value, and which ranks hold the same of a weight. */
#include "plan/lower/lowering.h"

int meg_lower_rank(const meg_lower *l, int segment)
{
    return meg_entry_mesh(l->entry, l->out->direction, segment)->rank[l->out->position[segment]];
}

/* The model's rank among those that read the weight as this rank does; -1: this rank does not. */
static int model_rank(const meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        int segment = e->segment_of[e->reader[i]], position = l->out->position[segment];
        if (position >= 0)
            return meg_entry_mesh(e, l->out->direction, segment)
                ->rank[meg_segment_model(e, segment, position)];
    }
    return -1;
}

/* Does any station of the rank read the weight? */
static bool is_read(const meg_entry *e, int value)
{
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++)
        for (int k = 0; k < e->stations; k++)
            if (e->station[k].position[e->segment_of[e->reader[i]]] >= 0) return true;
    return false;
}

/* The rank's box of a weight, and the ranks that hold just the same. */
static void share_weight(meg_lower *l, int value, meg_box box[], int same[])
{
    const meg_plan *p = l->plan;
    int own = l->out->rank % p->each, model = model_rank(l, value), count = 0;
    if (!is_read(l->entry, value)) return;
    meg_entry_weight(p, l->entry, value, box);
    l->odd[value] = model >= 0 && !meg_box_equal(&box[own], &box[model % p->each]);
    if (l->odd[value] && l->foreign) own = model % p->each;
    l->out->box[value] = box[own];
    for (int r = 0; r < p->each; r++)
        if (!meg_box_empty(&box[r]) && meg_box_equal(&box[r], &box[own])) same[count++] = r;
    l->sharers[value] = meg_lower_everywhere(l, value, same, count);
}

static void input_box(meg_lower *l, int value)
{
    const meg_entry *e = l->entry;
    meg_box *box = &l->out->box[value];
    for (int i = e->reader_first[value]; i < e->reader_first[value + 1]; i++) {
        int v = e->reader[i], position = l->out->position[e->segment_of[v]];
        if (l->mine[v])
            *box = meg_box_hull(*box, meg_entry_need(e, &e->graph->node[v], value, position));
    }
}

void meg_lower_parts(meg_lower *l)
{
    meg_station *t = l->out;
    const meg_entry *e = l->entry;
    const meg_graph *g = l->g;
    size_t each = (size_t)l->plan->each;
    meg_box *box = meg_pool_alloc(l->pool, each * sizeof *box);
    int *same = meg_pool_alloc(l->pool, each * sizeof *same);
    t->work = meg_pool_alloc(l->plan->lowered, ((size_t)g->nodes + 1) * sizeof *t->work);
    t->box = meg_pool_alloc(l->plan->lowered, ((size_t)g->values + 1) * sizeof *t->box);
    l->newest = meg_pool_alloc(l->pool, ((size_t)g->values + 1) * sizeof *l->newest);
    l->odd = meg_pool_alloc(l->pool, (size_t)g->values + 1);
    l->sharers = meg_pool_alloc(l->pool, ((size_t)g->values + 1) * sizeof *l->sharers);
    for (int i = 0; i < g->nodes; i++) {
        int position = t->position[e->segment_of[i]];
        l->mine[i] = position >= 0;
        if (!l->mine[i]) continue;
        t->work[i] = meg_entry_work(e, &g->node[i], position);
        for (int k = 0; k < g->node[i].outputs; k++)
            t->box[g->node[i].out[k]] = meg_entry_held(e, g->node[i].out[k], position);
    }
    for (int i = 0; i < g->values; i++) {
        meg_kind kind = g->value[i].kind;
        if (meg_kind_lasts(kind)) share_weight(l, i, box, same);
        else if (kind != MEG_MADE) input_box(l, i);
    }
}
