/* Actors: see actor.h. */
#include "plan/replay/actor.h"
#include "machine/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

/* The other way round of `after`. */
static void list_heirs(meg_actor *a)
{
    const meg_events *v = &a->events;
    a->heirs = zeroed((size_t)v->notes + 1, sizeof *a->heirs);
    a->heir = zeroed((size_t)v->afters, sizeof *a->heir);
    for (int i = 0; i < v->afters; i++)
        a->heirs[v->after[i] + 1]++;
    for (int i = 0; i < v->notes; i++)
        a->heirs[i + 1] += a->heirs[i];
    int *at = zeroed((size_t)v->notes, sizeof *at);
    for (int i = 0; i < v->notes; i++)
        for (int k = 0; k < v->note[i].afters; k++) {
            int before = v->after[v->note[i].after + k];
            a->heir[a->heirs[before] + at[before]++] = i;
        }
    free(at);
}

static void add_rows(meg_actor *a, const meg_segment *s, int first)
{
    int stride = s->size;
    for (int i = 0; i < MEG_AXES; i++) {
        stride /= s->dim[i];
        if (s->dim[i] > 1) a->row[a->rows++] = (meg_actor_row){first, stride, s->dim[i]};
    }
}

static void list_rows(const meg_plan *p, meg_actor *a)
{
    int at = a->rank % p->each, stages = (int)p->options.stages, ways = p->directions;
    a->each = p->each;
    a->row = zeroed((size_t)(ways * p->segments * MEG_AXES), sizeof *a->row);
    for (int i = 0; i < ways * p->segments; i++) {
        const meg_segment *s = &p->segment[i / ways];
        int first = p->place[i % ways * stages + s->stage];
        if (at >= first && at < first + s->size) add_rows(a, s, first);
    }
}

static void copy_teams(const meg_entry *e, meg_actor *out)
{
    out->teams = e->teams;
    out->team = zeroed((size_t)e->teams, sizeof *out->team);
    for (int i = 0; i < e->teams; i++) {
        size_t count = (size_t)e->team[i].count;
        out->team[i] = (meg_team){.count = e->team[i].count, .rank = zeroed(count, sizeof(int))};
        memcpy(out->team[i].rank, e->team[i].rank, count * sizeof(int));
    }
}

void meg_actor_make(const meg_plan *p, int entry, meg_actor *out)
{
    const meg_prices *prices = p->profile.prices ? p->profile.prices : meg_prices_builtin();
    const meg_prices_head *head = meg_prices_head_of(prices);
    *out = (meg_actor){.rank = p->world.rank,
                       .allreduce = meg_allreduce_find(p->options.allreduce),
                       .number_bytes = meg_dtype_bytes(p->profile.real),
                       .threads = head->threads,
                       .issue = head->rates.issue,
                       .post = head->rates.post,
                       .wake = head->rates.step,
                       .resume = fmax(head->rates.step, head->rates.resume)};
    meg_events_of(p, entry, &out->events);
    list_heirs(out);
    list_rows(p, out);
    copy_teams(&p->entry[entry], out);
}

void meg_actor_clear(meg_actor *a)
{
    meg_events_clear(&a->events);
    for (int i = 0; i < a->teams; i++)
        free(a->team[i].rank);
    free(a->team);
    free(a->row);
    free(a->heir);
    free(a->heirs);
    *a = (meg_actor){0};
}

meg_transit meg_actor_sum(const meg_actor *a, int note, const meg_machine *m, meg_transits *known)
{
    const meg_traffic_note *n = &a->events.note[note];
    const meg_team *team = &a->team[n->crew];
    const meg_allreduce_kind *const kind[] = {a->allreduce, &meg_ring_scatter, &meg_ring_gather};
    int64_t each = a->number_bytes;
    meg_transit_sum sum = {.kind = kind[n->how / 2],
                           .ranks = team->count,
                           .rank = team->rank,
                           .count = (n->bytes + each - 1) / each,
                           .element_bytes = each,
                           .piece = MEG_REDUCE_PIECE,
                           .pieces = MEG_REDUCE_PIECES};
    return meg_transits_of_sum(known, m, &sum);
}
