/* A program of the public interface in a test: the same calls on one rank or several, which are threads. */
#ifndef TESTS_CALLER_HELP_H
#define TESTS_CALLER_HELP_H

#include "threads_help.h"
#include "train/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct caller_case {
    const char *device, *model, *net, *data, *plan, *trainer; /* data: NULL: none */
    int ranks;
    meg_graph *(*graph)(meg_context *ctx); /* in place of a model */
} caller_case;

typedef struct caller { /* one rank */
    const caller_case *k;
    meg_context *ctx;
    meg_graph *net;
    meg_data *data;
    meg_plan *plan;
    meg_trainer *trainer;
} caller;

typedef void caller_function(caller *c, void *argument);

typedef struct caller_job {
    const caller_case *k;
    caller_function *run;
    void *argument;
} caller_job;

static inline void caller_must(const caller *c, meg_status status)
{
    REQUIRE(status == MEG_OK, "%s: %s", c->k->plan, meg_message(c->ctx));
}

static inline void caller_main(meg_comm *comm, void *argument)
{
    const caller_job *j = argument;
    const caller_case *k = j->k;
    caller c = {.k = k};
    meg_comm *own = NULL;
    meg_error e = {0};
    char context[128];
    snprintf(context, sizeof context, "device=%s threads=1 seed=3 pin=0 log=quiet prices=builtin",
             k->device);
    OK(&e, meg_comm_split(comm, &e, 0, &own)); /* the context frees its own */
    caller_must(&c, meg_context_open(context, own, &c.ctx));
    if (k->graph) c.net = k->graph(c.ctx);
    else caller_must(&c, meg_graph_model(c.ctx, k->model, k->net, &c.net));
    if (k->data) caller_must(&c, meg_data_open(c.ctx, k->data, &c.data));
    caller_must(&c, meg_plan_new(c.net, c.data, k->plan, &c.plan));
    caller_must(&c, meg_trainer_new(c.plan, c.data, k->trainer, &c.trainer));
    j->run(&c, j->argument);
    meg_trainer_free(c.trainer);
    meg_plan_free(c.plan);
    meg_data_free(c.data);
    meg_graph_free(c.net);
    meg_close(c.ctx);
}

static inline void caller_run(const caller_case *k, caller_function *run, void *argument)
{
    caller_job j = {k, run, argument};
    meg_threads_options o = {.ranks = k->ranks, .rendezvous = true};
    run_ranks(&o, caller_main, &j);
}

static inline int64_t caller_size(const meg_tensor *t)
{
    int64_t size = 1;
    for (int i = 0; i < t->rank; i++)
        size *= t->shape[i];
    return size;
}

/* By norm, relative to the second; refuses what is degenerate. */
static inline double caller_distance(const double *a, const double *b, int64_t count)
{
    double far = 0, norm = 0;
    for (int64_t i = 0; i < count; i++)
        far += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return norm > 0 && isfinite(norm) ? sqrt(far / norm) : NAN;
}

#endif
