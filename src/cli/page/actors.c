/* Actors that are shown: see actors.h. */
#include "cli/page/actors.h"

#include <stdlib.h>

typedef struct choice {
    int count, most, *actor;
} choice;

static void take(choice *c, int actor)
{
    for (int i = 0; i < c->count; i++)
        if (c->actor[i] == actor) return;
    if (c->count < c->most) c->actor[c->count++] = actor;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int meg_actors_choose(const meg_foresight *f, int most, int actor[])
{
    const meg_whole *w = &f->whole;
    choice c = {0, most, actor};
    int largest = 0;
    for (int i = 0; i < w->actors; i++)
        if (w->arena[i] > w->arena[largest]) largest = i;
    take(&c, largest);
    take(&c, w->actor_of[0]);
    for (int i = 0; i < f->critical.parts && c.count < most / 2; i++)
        take(&c, f->critical.part[i].actor);
    for (int i = 0; i < most; i++)
        take(&c, (int)((int64_t)i * w->actors / most));
    for (int i = 0; i < w->actors && c.count < most; i++)
        take(&c, i);
    for (int i = 0; i < c.count; i++) /* by ranks: actors are numbered from the last one down */
        actor[i] = w->actor[actor[i]].rank;
    qsort(actor, (size_t)c.count, sizeof *actor, by_number);
    for (int i = 0; i < c.count; i++)
        actor[i] = w->actor_of[actor[i]];
    return c.count;
}

/* One plan is turned from rank to rank. */
meg_status meg_actors_visit(const meg_foresight *f, meg_error *e, const meg_actors_tour *t)
{
    meg_world world = {f->whole.actor[t->actor[0]].rank, f->whole.ranks};
    meg_plan_input in = {&f->profile, &world, f->options, f->samples, NULL};
    meg_plan *p = NULL;
    MEG_TRY(e, meg_plan_from(t->graph, e, &in, &p));
    meg_status status = MEG_OK;
    for (int i = 0; i < t->count && status == MEG_OK; i++) {
        if (i > 0) status = meg_plan_turn(p, e, f->whole.actor[t->actor[i]].rank);
        if (status != MEG_OK) break;
        meg_sheet *s = meg_sheet_new(p);
        t->visit(t->context, t->actor[i], p, s);
        meg_sheet_free(s);
    }
    meg_plan_destroy(p);
    return status;
}
