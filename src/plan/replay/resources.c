/* Shared resources of a replay: see resources.h. */
#include "plan/replay/resources.h"
#include "plan/replay/transit.h"

#include <math.h>
#include <stdlib.h>

double meg_cores_of_rank(const meg_machine *m)
{
    double cores = (double)m->cores / (double)m->ranks;
    if (m->all_cores) cores = fmin(cores, (double)m->all_cores / (double)(m->ranks * m->nodes));
    return fmax(1, cores);
}

int meg_resource_of(const meg_resources *r, int node, meg_resource kind)
{
    if (kind == MEG_CORES && r->pooled) node = 0;
    return r->actors + node * MEG_RESOURCE_KINDS + (int)kind;
}

meg_resources meg_resources_new(const meg_machine *m, int ranks, int actors)
{
    int nodes = meg_machine_node(m, ranks - 1) + 1;
    meg_resources r = {.actors = actors, .count = actors + nodes * MEG_RESOURCE_KINDS};
    r.pooled = m->all_cores > 0;
    r.load = calloc((size_t)r.count, sizeof *r.load);
    r.capacity = calloc((size_t)r.count, sizeof *r.capacity);
    if (!r.load || !r.capacity) abort();
    for (int i = 0; i < actors; i++)
        r.capacity[i] = meg_cores_of_rank(m);
    for (int i = 0; i < nodes; i++) {
        r.capacity[meg_resource_of(&r, i, MEG_OUT)] = m->between.all;
        r.capacity[meg_resource_of(&r, i, MEG_IN)] = m->between.all;
        r.capacity[meg_resource_of(&r, i, MEG_BOTH)] = m->between.both;
        r.capacity[meg_resource_of(&r, i, MEG_INSIDE)] = m->inside.all;
        r.capacity[meg_resource_of(&r, i, MEG_CORES)] = (double)(r.pooled ? m->all_cores : m->cores);
    }
    return r;
}

void meg_resources_free(meg_resources *r)
{
    free(r->load);
    free(r->capacity);
}

void meg_wants_add(const meg_resources *r, meg_wants *w, int resource, double amount)
{
    if (amount <= 0 || r->capacity[resource] <= 0) return;
    for (int i = 0; i < w->count; i++)
        if (w->at[i].resource == resource) {
            w->at[i].amount += amount;
            return;
        }
    if (w->count == MEG_WANTS) return;
    w->at[w->count].resource = resource;
    w->at[w->count++].amount = amount;
}

void meg_resources_unload(meg_resources *r, const meg_wants *w)
{
    for (int i = 0; i < w->count; i++)
        r->load[w->at[i].resource] = 0;
}

void meg_resources_load(meg_resources *r, const meg_wants *w)
{
    for (int i = 0; i < w->count; i++)
        r->load[w->at[i].resource] += w->at[i].amount;
}

double meg_resources_speed(const meg_resources *r, const meg_wants *w)
{
    double speed = 1;
    for (int i = 0; i < w->count; i++)
        speed = fmin(speed, r->capacity[w->at[i].resource] / r->load[w->at[i].resource]);
    return speed;
}
