/* One training step of a network under a plan, and what it leaves: loss, gradients, running statistics.
 * tests/compare.h compares two of them.
 */
#ifndef TESTS_NETWORK_H
#define TESTS_NETWORK_H

#include "exec/engine.h"
#include "exec/profile.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    NETWORK_TENSORS = 4096
};

typedef struct network_case {
    const meg_graph *graph;
    const char *plan; /* options; keep_grads is added */
    const char *device;
    int threads;
} network_case;

typedef struct network_result {
    double loss, correct, error; /* error: mean absolute, of real targets */
    int tensors;
    char name[NETWORK_TENSORS][64];
    double *data[NETWORK_TENSORS]; /* gradients of parameters, running statistics */
    int64_t count[NETWORK_TENSORS];
    bool gradient[NETWORK_TENSORS];
    int64_t predicted, touched;
} network_result;

static inline meg_graph *network_zoo(const char *model, const char *options)
{
    meg_error e;
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, model, options, &g) != MEG_OK) fail_msg("%s", e.message);
    return g;
}

typedef struct network_sink {
    const meg_value *value;
    double *to;
    meg_dtype real;
} network_sink;

static inline void network_take(void *context, const meg_box *box, void *data)
{
    network_sink *s = context;
    int64_t p[MEG_AXES], i = 0;
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p), i++)
        s->to[meg_box_at(&s->value->shape, p)] = s->real == MEG_F64 ? ((double *)data)[i]
                                                                    : (double)((float *)data)[i];
}

static inline void network_collect(meg_engine *x, network_result *r)
{
    const meg_graph *g = meg_engine_graph(x);
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        if (!meg_kind_lasts(v->kind)) continue;
        int at = r->tensors++;
        snprintf(r->name[at], sizeof r->name[at], "%s", v->name);
        r->count[at] = meg_box_size(&v->shape);
        r->gradient[at] = v->kind == MEG_PARAMETER;
        r->data[at] = calloc((size_t)r->count[at], sizeof(double));
        network_sink s = {v, r->data[at], meg_engine_real(x)};
        meg_role role = v->kind == MEG_PARAMETER ? MEG_ROLE_GRADIENT : MEG_ROLE_VALUE;
        assert_true(meg_engine_get(x, i, role, 0, network_take, &s));
    }
}

/* The step's data, the same for every case: random numbers for each input (ids are floats), classes or
 * targets, of which every fifth is missing. */
static inline void network_feed(const meg_graph *g, int64_t batch, meg_feed *f)
{
    meg_fed *fed = calloc((size_t)g->values, sizeof *fed);
    *f = (meg_feed){.fed = fed, .scalars = {0.05, 1, 0, 1}, .seed = 3};
    uint64_t inputs = 0, labels = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        if (v->kind != MEG_INPUT && v->kind != MEG_LABEL) continue;
        int64_t size = meg_box_size(&v->shape) / v->shape.hi[MEG_N] * batch;
        int64_t kinds = meg_graph_kinds(g, i);
        if (v->dtype == MEG_I32 && kinds == 0) kinds = 2; /* a mask */
        bool label = v->kind == MEG_LABEL;
        meg_stream s = {7, label ? labels++ : inputs++, meg_hash("network_feed")};
        uint64_t first = !label ? 0 : kinds ? 1000000000 : 2000000000;
        float *x = calloc((size_t)size, sizeof *x);
        int32_t *y = (int32_t *)(void *)x;
        for (int64_t k = 0; k < size; k++) {
            uint64_t at = first + (uint64_t)k;
            double share = meg_random_uniform(s, at);
            if (label && kinds) y[k] = (int32_t)(share * (double)kinds);
            else if (label) x[k] = k % 5 == 1 ? NAN : (float)share;
            else if (kinds) x[k] = floorf((float)(share * (double)kinds));
            else x[k] = (float)meg_random_normal(s, at);
        }
        fed[f->count++] = (meg_fed){
            .name = v->name, .data = x, .dtype = label && kinds ? MEG_I32 : MEG_F32};
    }
}

static inline void network_unfeed(meg_feed *f)
{
    for (int i = 0; i < f->count; i++)
        free((void *)(uintptr_t)f->fed[i].data);
    free((void *)(uintptr_t)f->fed);
    f->count = 0;
}

/* The numbers that were made for the graph's first input. */
static inline float *network_fed(const meg_feed *f)
{
    return (float *)(uintptr_t)f->fed[0].data;
}

static inline network_result *network_run(const network_case *c, int entry, int64_t samples)
{
    meg_error e;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_feed f;
    meg_outcome o;
    network_result *r = calloc(1, sizeof *r);
    char options[512];
    snprintf(options, sizeof options, "keep_grads=1 %s", c->plan);
    if (meg_device_open(&e, c->device, c->threads, &d) != MEG_OK) fail_msg("%s", e.message);
    meg_profile profile = meg_profile_of(d);
    if (meg_plan_make(c->graph, &e, &profile, options, samples, &p) != MEG_OK)
        fail_msg("%s", e.message);
    if (meg_engine_new(p, d, NULL, &e, MEG_FILL, &x) != MEG_OK) fail_msg("%s", e.message);
    meg_engine_start(x, 5);
    network_feed(c->graph, p->entry[entry].batch, &f);
    if (meg_engine_step(x, &e, entry, &f, &o) != MEG_OK) fail_msg("%s", e.message);
    r->loss = o.loss;
    r->correct = o.correct;
    r->error = o.error;
    r->predicted = p->arena;
    r->touched = meg_engine_touched(x);
    network_collect(x, r);
    network_unfeed(&f);
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
    return r;
}

static inline void network_free(network_result *r)
{
    for (int i = 0; i < r->tensors; i++)
        free(r->data[i]);
    free(r);
}

static inline double network_norm(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = a[i] - (b ? b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

#endif
