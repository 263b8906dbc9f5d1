/* A training of some steps on ranks that are threads, with checkpoints: what is fed depends on the
 * step alone, so that one training can be continued by another.
 */
#ifndef TESTS_CHECKPOINT_HELP_H
#define TESTS_CHECKPOINT_HELP_H

#include "base/random.h"
#include "network.h"
#include "scratch.h"
#include "threads_help.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/collect.h"

enum {
    RUN_STEPS = 64
};

typedef struct run_case {
    const meg_graph *graph;
    const char *plan, *device;
    int ranks;
    const char *folder; /* of checkpoints; NULL: none */
    int64_t until, every, keep, seed;
    int resume;
    bool dry;          /* resumes only */
    const char *spoil; /* this value gets a NaN before the first checkpoint; NULL: none */
} run_case;

typedef struct run_result { /* as rank 0 saw it */
    meg_status status;      /* of opening, resuming and writing: of all ranks */
    char message[1024];
    int64_t begin;          /* step it resumed from */
    double loss[RUN_STEPS]; /* of step i + 1 */
    int tensors;
    char name[512][96];
    double *data[512]; /* everything that a checkpoint has, at the end */
    int64_t count[512];
} run_result;

typedef struct run_shared {
    const run_case *c;
    run_result *result;
    meg_status status[16]; /* of each rank */
} run_shared;

static inline void run_feed(const run_case *c, int64_t batch, int64_t step, meg_feed *f)
{
    network_feed(c->graph, batch, f);
    float *x = network_fed(f);
    meg_stream s = {11, (uint64_t)step, meg_hash("run_feed")};
    int64_t each = 0;
    for (int i = 0; i < c->graph->values; i++) {
        const meg_value *v = &c->graph->value[i];
        if (v->kind == MEG_INPUT) each = meg_box_size(&v->shape) / v->shape.hi[MEG_N];
    }
    meg_random_normals(s, 0, each * batch, x);
    f->scalars = (meg_scalars){0.02 / (1 + 0.1 * (double)step), (double)(step + 1), 0, 1};
    f->seed = (uint64_t)c->seed;
    f->step = (uint64_t)step;
}

static inline meg_status run_take(void *to, const void *piece, int64_t count)
{
    network_sink *s = to; /* `value` is not used: pieces come in order */
    for (int64_t i = 0; i < count; i++)
        *s->to++ = s->real == MEG_F64 ? ((const double *)piece)[i] : ((const float *)piece)[i];
    return MEG_OK;
}

static inline meg_status run_gather(void *context, meg_collection *c, meg_error *e)
{
    run_result *r = context;
    for (int i = 0; i < meg_collection_count(c); i++) {
        const meg_item *t = meg_collection_item(c, i);
        int at = r->tensors++;
        r->count[at] = meg_box_size(&t->value->shape);
        r->data[at] = calloc((size_t)r->count[at], sizeof(double));
        snprintf(r->name[at], sizeof r->name[at], "%s", t->name);
        network_sink s = {NULL, r->data[at], meg_collection_real(c)};
        MEG_TRY(e, meg_collection_get(c, e, i, run_take, &s));
    }
    return MEG_OK;
}

static inline void run_put_nan(void *context, const meg_box *box, void *data)
{
    (void)box;
    if (*(meg_dtype *)context == MEG_F64) *(double *)data = NAN;
    else *(float *)data = NAN;
}

static inline void run_spoil(meg_engine *x, const char *name)
{
    meg_dtype real = meg_engine_real(x);
    int id = meg_graph_find_value(meg_engine_graph(x), name);
    REQUIRE(id >= 0, "there is no %s", name);
    meg_engine_put(x, id, MEG_ROLE_VALUE, 0, run_put_nan, &real);
}

static inline void run_steps(const run_case *c, meg_engine *x, meg_position *at, meg_checkpoints *k,
                             run_result *r, meg_error *e)
{
    int64_t batch = meg_engine_plan(x)->options.batch;
    while (at->step < c->until && e->status == MEG_OK) {
        meg_feed f;
        meg_outcome o;
        run_feed(c, batch, at->step, &f);
        OK(e, meg_engine_step(x, e, MEG_ENTRY_TRAIN, &f, &o));
        network_unfeed(&f);
        if (r) r->loss[at->step] = o.loss;
        at->step++;
        if (c->spoil && at->step % c->every == 0) run_spoil(x, c->spoil);
        if (k && at->step % c->every == 0) meg_checkpoint_write(k, e, at);
    }
}

static inline void run_rank(meg_comm *comm, void *argument)
{
    run_shared *all = argument;
    const run_case *c = all->c;
    int rank = meg_comm_rank(comm);
    run_result *r = rank == 0 ? all->result : NULL;
    meg_error e = {0};
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_checkpoints *k = NULL;
    meg_world world = {rank, meg_comm_size(comm)};
    meg_position at = {.per_epoch = 7, .samples = 70, .seed = c->seed};
    OK(&e, meg_device_open(&e, c->device, 1, &d));
    meg_profile profile = meg_profile_of(d);
    OK(&e, meg_plan_make_for(c->graph, &e, &profile, &world, c->plan, 0, &p));
    OK(&e, meg_engine_new(p, d, comm, &e, MEG_FILL, &x));
    meg_engine_start(x, (uint64_t)c->seed);
    meg_checkpoints_options o = {
        .folder = c->folder, .keep = c->keep, .resume = c->resume, .log = {MEG_WARN}};
    if (c->folder && meg_checkpoints_open(x, comm, &e, &o, &k) == MEG_OK)
        meg_checkpoint_resume(k, &e, &at);
    if (r) r->begin = at.step;
    if (e.status == MEG_OK && !c->dry) run_steps(c, x, &at, k, r, &e);
    all->status[rank] = e.status;
    if (r) snprintf(r->message, sizeof r->message, "%s", e.status == MEG_OK ? "" : e.message);
    meg_checkpoints_close(k);
    meg_error after = {0};
    OK(&after,
       meg_collect(x, comm, &after, MEG_COLLECT_VALUES | MEG_COLLECT_OPTIMIZER, run_gather, r));
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
}

static inline run_result *run_training(const run_case *c)
{
    run_result *r = calloc(1, sizeof *r);
    run_shared all = {.c = c, .result = r};
    meg_threads_options o = {.ranks = c->ranks, .rendezvous = true};
    run_ranks(&o, run_rank, &all);
    r->status = all.status[0];
    for (int i = 1; i < c->ranks; i++)
        if (all.status[i] != r->status)
            fail_msg("rank %d has status %d, rank 0 %d", i, all.status[i], r->status);
    return r;
}

static inline void run_free(run_result *r)
{
    for (int i = 0; i < r->tensors; i++)
        free(r->data[i]);
    free(r);
}

/* The largest difference of two states, by norm and tensor. */
static inline double run_apart(const run_result *a, const run_result *b)
{
    double most = 0;
    assert_int_equal(a->tensors, b->tensors);
    for (int i = 0; i < a->tensors; i++) {
        int at = 0;
        while (at < b->tensors && strcmp(a->name[i], b->name[at]) != 0)
            at++;
        if (at == b->tensors) fail_msg("there is no %s", a->name[i]);
        assert_true(a->count[i] == b->count[at]);
        double scale = network_norm(a->data[i], NULL, a->count[i]) + 1e-300;
        double apart = network_norm(a->data[i], b->data[at], a->count[i]) / scale;
        if (apart > most) most = apart;
    }
    return most;
}

#endif
