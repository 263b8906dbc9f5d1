/* What the tests of pipeline schedules share: draw, replay at equal costs, pass the check. */
#ifndef MEG_TESTS_PIPES_H
#define MEG_TESTS_PIPES_H

#include "plan/schedule/schedule.h"
#include "rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline const meg_row *row(const char *name)
{
    meg_error e = {0};
    const meg_row *found = NULL;
    if (meg_row_find(&e, name, &found)) fail_msg("%s", e.message);
    return found;
}

static inline meg_timetable *draw(meg_pool *pool, const char *name, meg_pipe p)
{
    meg_error e = {0};
    meg_timetable *t = NULL;
    if (meg_timetable_draw(&e, pool, row(name), &p, &t)) fail_msg("%s", e.message);
    return t;
}

/* ---- replay with the same costs for every stage ---- */

typedef struct unit {
    double f, b, w;
} unit;

static inline meg_replay replay(meg_pool *pool, const meg_timetable *t, unit c)
{
    meg_error e = {0};
    meg_replay r = {0};
    double *all = meg_pool_alloc(pool, 3 * (size_t)t->stages * sizeof *all);
    for (int s = 0; s < t->stages; s++) {
        all[s] = c.f;
        all[t->stages + s] = c.b;
        all[2 * t->stages + s] = c.w;
    }
    meg_costs costs = {.f = all, .b = all + t->stages, .w = all + 2 * t->stages};
    if (meg_timetable_replay(&e, pool, t, &costs, &r)) fail_msg("%s", e.message);
    return r;
}

static inline void equal(const meg_timetable *t, const char *what, double got, double want)
{
    if (got != want)
        fail_msg("%s, %d stages on %d ranks, %d micro-batches: %s is %g, should be %g", t->schedule,
                 t->stages, t->ranks, t->micro, what, got, want);
}

static inline void passes(const meg_timetable *t, const meg_rendezvous *how)
{
    meg_error e = {0};
    if (meg_timetable_check(&e, t, how)) fail_msg("%s", e.message);
}

#endif
