/* Running a plan to time its kernels: see run.h. */
#include "exec/probe/run.h"
#include "base/clock.h"
#include "exec/meters/median.h"
#include "exec/probe/tempo.h"
#include "exec/probe/waits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUNCHES = 30 /* of turns of the reference loop, in one look, at most */
};

static const double SHARE = 0.2; /* of the time of steps, for the loop beside them */

static const meg_value *leaf_of(const meg_graph *g, meg_kind kind)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == kind) return &g->value[i];
    return NULL;
}

static int64_t sample_size(const meg_value *x)
{
    meg_box one = x->shape;
    one.hi[MEG_N] = one.lo[MEG_N] + 1;
    return meg_box_size(&one);
}

typedef struct samples {
    int count;
    meg_fed *fed;
} samples;

static void samples_free(samples *s)
{
    for (int i = 0; i < s->count; i++)
        free((void *)(uintptr_t)s->fed[i].data);
    free(s->fed);
}

/* Numbers of a normal size, without a pattern that a kernel could gain by; labels are 0. */
static float *numbers_of(const meg_graph *g, const meg_value *x, int64_t count)
{
    float *out = calloc((size_t)count + 1, sizeof *out);
    int64_t rows = meg_graph_kinds(g, x->id);
    if (x->dtype == MEG_I32 && rows == 0) rows = 2; /* a mask */
    uint32_t state = 1;
    for (int64_t i = 0; out && i < count && x->kind == MEG_INPUT; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = rows ? (float)(state % (uint32_t)(rows < 1 << 24 ? rows : 1 << 24))
                      : (float)(state >> 8) * 0x1p-23f - 1;
    }
    return out;
}

static meg_status make_samples(const meg_plan *p, meg_error *e, samples *out)
{
    const meg_graph *g = p->source;
    MEG_CHECK(e, leaf_of(g, MEG_INPUT) && leaf_of(g, MEG_LABEL), MEG_EARG,
              "%s has no %s: it cannot be trained", g->name,
              leaf_of(g, MEG_INPUT) ? "loss" : "input");
    *out = (samples){.fed = calloc((size_t)g->values, sizeof *out->fed)};
    MEG_CHECK(e, out->fed, MEG_ENOMEM, "no memory for a batch of %s", g->name);
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT && x->kind != MEG_LABEL) continue;
        float *numbers = numbers_of(g, x, p->options.batch * sample_size(x));
        MEG_CHECK(e, numbers, MEG_ENOMEM, "no memory for a batch of %s", g->name);
        out->fed[out->count++] = (meg_fed){.name = x->name, .data = numbers};
    }
    return MEG_OK;
}

typedef struct list {
    double *seconds;
    size_t count, room;
} list;

static void add(list *l, double seconds)
{
    l->seconds = meg_grow(l->seconds, &l->room, l->count + 1, sizeof *l->seconds);
    l->seconds[l->count++] = seconds;
}

typedef struct measured {
    meg_engine *engine;
    meg_feed feed;
    list looks; /* at the loop: before, between and behind the steps */
    list busy;  /* of each step: the thread that issues, without waiting for messages */
    list idle;  /* neither it nor the device worked */
} measured;

static meg_status one_step(measured *m, meg_error *e, double *wall)
{
    meg_outcome outcome;
    m->feed.step++;
    m->feed.scalars.step = (double)m->feed.step;
    double start = meg_clock();
    meg_status status = meg_engine_step(m->engine, e, MEG_ENTRY_TRAIN, &m->feed, &outcome);
    *wall = meg_clock() - start;
    return status == MEG_ENAN ? MEG_OK : status; /* the times are right all the same */
}

/* All that must do as many steps: those of the plan, or those of the loop between the steps. NULL: none. */
static meg_comm *company(const meg_probe_site *site)
{
    meg_comm *c = site->comm ? site->comm : site->drift ? meg_drift_comm(site->drift) : NULL;
    return c && meg_comm_size(c) > 1 ? c : NULL;
}

typedef struct course {
    int steps;
    int bunches, every; /* of turns of the loop, in a look before each so-manyeth step */
} course;

/* As many steps as there is time for, the same on all ranks. */
static meg_status set_course(const meg_probe_site *site, meg_error *e, double first, course *out)
{
    first = fmax(first, 1e-6);
    double steps = fmin(fmax(site->seconds / first, site->least), site->most);
    double bunch = MEG_DRIFT_BUNCH * site->turn_work;
    double bunches = bunch > 0 ? fmin(SHARE * first / bunch, BUNCHES) : 1;
    *out = (course){(int)steps, (int)fmax(bunches, 1),
                    bunches < 1 ? (int)fmin(1 / bunches, 1000) : 1};
    meg_comm *c = company(site);
    return c ? meg_comm_share(c, e, 0, out, sizeof *out) : MEG_OK;
}

static meg_status look_at_machine(measured *m, meg_error *e, const meg_probe_site *site,
                                  int bunches)
{
    meg_drift_time now;
    if (!site->drift) return MEG_OK;
    MEG_TRY(e, meg_drift_look(site->drift, e, bunches, &now));
    add(&m->looks, now.work);
    return MEG_OK;
}

static meg_tempo tempo_of(const measured *m, const meg_probe_site *site, const course *c)
{
    return (meg_tempo){m->looks.seconds, (int)m->looks.count, c->every,
                       site->drift ? site->turn_work : 0};
}

/* The same on all ranks, as the looks are. */
static bool goes_on(const measured *m, const meg_probe_site *site, const course *c, int steps)
{
    meg_tempo p = tempo_of(m, site, c);
    return steps < c->steps ||
           (steps < site->patience * c->steps && meg_tempo_keep(&p, steps, NULL) < site->least);
}

static meg_status timed_step(measured *m, meg_error *e, meg_timings *t)
{
    double wall;
    meg_timings_next(t);
    double busy = meg_clock_thread() - meg_engine_exposed(m->engine);
    MEG_TRY(e, one_step(m, e, &wall));
    busy = meg_clock_thread() - meg_engine_exposed(m->engine) - busy;
    add(&m->busy, busy);
    add(&m->idle, wall - busy - meg_timings_now(t));
    return MEG_OK;
}

static meg_status timed_steps(measured *m, meg_error *e, const meg_probe_site *site,
                              const course *c, meg_timings *t)
{
    for (int i = 0; goes_on(m, site, c, i); i++) {
        if (i % c->every == 0) MEG_TRY(e, look_at_machine(m, e, site, c->bunches));
        MEG_TRY(e, timed_step(m, e, t));
    }
    return look_at_machine(m, e, site, c->bunches);
}

/* Those of steps that are kept, at the front. */
static void only(list *l, const bool *keep)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (keep[i]) l->seconds[kept++] = l->seconds[i];
    l->count = kept;
}

static void tell_host(measured *m, const meg_probe_site *site, int kernels, const bool *keep)
{
    meg_probe_host *out = site->host;
    meg_waits w = meg_waits_of(meg_engine_plan(m->engine), MEG_ENTRY_TRAIN, site->machine);
    only(&m->busy, keep);
    only(&m->idle, keep);
    int64_t steps = (int64_t)m->busy.count;
    for (int64_t i = 0; i < steps; i++)
        out->seconds += m->busy.seconds[i];
    out->kernels += kernels * steps;
    out->notes += w.notes * steps;
    out->idle += meg_median(m->idle.seconds, m->idle.count) * (double)steps;
    out->waits += w.waits * steps;
    out->known += w.seconds * (double)steps;
}

/* Of steps at the book's pace, if there are enough. */
static void settle(measured *m, const meg_probe_site *site, const course *c, meg_timings *out,
                   int *kernels)
{
    int steps = (int)m->busy.count, issued = 0;
    meg_tempo p = tempo_of(m, site, c);
    bool *keep = calloc((size_t)steps + 1, sizeof *keep);
    if (!keep) abort();
    int kept = meg_tempo_keep(&p, steps, keep);
    for (int i = 0; i < steps && kept < site->least; i++)
        keep[i] = true;
    meg_timings_end(out, keep, meg_tempo_quicker(&p, steps, keep), &issued);
    if (kernels) *kernels = issued;
    if (site->host && steps > 0) tell_host(m, site, issued, keep);
    if (site->seen) *site->seen = (meg_probe_seen){steps, kept};
    free(keep);
}

static meg_status some_steps(measured *m, meg_error *e, const meg_probe_site *site,
                             meg_timings *out, int *kernels)
{
    double wall;
    course c;
    MEG_TRY(e, one_step(m, e, &wall)); /* pages, threads, code: all for the first time */
    if (site->least > 1) MEG_TRY(e, one_step(m, e, &wall));
    MEG_TRY(e, set_course(site, e, wall, &c));
    meg_timings_begin(out, site->device);
    meg_status status = timed_steps(m, e, site, &c, out);
    settle(m, site, &c, out, kernels);
    return status;
}

/* None goes on alone: the others would wait for it between the steps. */
static meg_status agree(const meg_probe_site *site, meg_error *e, meg_status status)
{
    if (!company(site)) return status;
    if (status == MEG_OK) meg_error_clear(e);
    return meg_comm_agree(company(site), e);
}

meg_status meg_probe_plan(meg_plan *p, meg_error *e, const meg_probe_site *site, meg_timings *out,
                          int *kernels)
{
    samples s = {0};
    measured m = {0};
    meg_status status = agree(site, e, make_samples(p, e, &s));
    m.feed = (meg_feed){.count = s.count, .fed = s.fed, .seed = 1};
    m.feed.scalars.scale = 1;
    if (status == MEG_OK)
        status = agree(site, e, meg_engine_new(p, site->device, site->comm, e, 0, &m.engine));
    if (status == MEG_OK) {
        meg_engine_start(m.engine, 1);
        status = some_steps(&m, e, site, out, kernels);
    }
    meg_engine_free(m.engine);
    free(m.looks.seconds);
    free(m.busy.seconds);
    free(m.idle.seconds);
    samples_free(&s);
    return status;
}
