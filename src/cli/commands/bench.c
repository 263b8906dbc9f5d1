/* `megalith bench MODEL`: speed and memory of training on synthetic data, as Horovod's benchmark
 * measures it: warm-up steps, then repeats of a number of steps; images/s of each repeat.
 *
 * A step is timed by the trainer, with the wait for its batch, which the loader's thread has made
 * during the step before; how long making one takes is printed, so that it can be seen not to
 * matter. Kernels are watched in a repeat of their own, which does not count.
 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "cli/ranks.h"
#include "cli/report/bar.h"
#include "cli/report/kernel.h"
#include "cli/report/measure.h"
#include "cli/session.h"
#include "plan/named.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCHES = 4 /* of the data set */
};

typedef struct settings {
    int64_t warmup, iterations, repeat;
    bool kernels, json;
} settings;

typedef struct job {
    meg_session s;
    const settings *o;
    meg_measure steps, repeats; /* seconds of each step, images/s of each repeat */
    double reading;             /* seconds to make one batch */
    double cpu;                 /* seconds of processor time of a step, of a rank */
    double exposed;       /* seconds of a step in which communication keeps a device waiting */
    int64_t heap, growth; /* bytes in use after the first step, and more at the end */
    meg_bar bar;
    int64_t done, total; /* steps */
    meg_report last;
} job;

static int64_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd);
}

/* ---- getting ready ---- */

/* " word=AxBxC": the extents of a value behind the samples, from axis `first` of its file. */
static const char *extents(meg_pool *pool, const char *word, const meg_value *x, int first)
{
    const char *text = meg_pool_text(pool, " %s=", word);
    for (int i = first; i < x->rank; i++)
        text = meg_pool_text(pool, "%s%s%" PRId64, text, i > first ? "x" : "", x->dims[i]);
    return text;
}

static const meg_value *input_of(const meg_graph *g)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT) return &g->value[i];
    return NULL;
}

/* Data of the graph's own shapes. */
static meg_status open_data(job *j)
{
    meg_session *s = &j->s;
    meg_pool *pool = s->arguments->pool;
    const meg_graph *g = s->graph;
    const meg_value *x = input_of(g);
    MEG_CHECK(s->error, x && g->losses, MEG_EARG, "%s has no %s: it cannot be trained", g->name,
              x ? "loss" : "input");
    const meg_node *loss = &g->node[g->value[g->loss[0].value].maker];
    const meg_value *label = &g->value[loss->in[1]];
    bool real = label->dtype != MEG_I32, tokens = x->dtype == MEG_I32;
    const char *text = meg_pool_text(pool, "synthetic:%s", extents(pool, "image", x, 1));
    if (label->rank > 1)
        text = meg_pool_text(pool, "%s%s", text, extents(pool, "extent", label, 1));
    text = meg_pool_text(pool, "%s labels=%s tokens=%d classes=%" PRId64 " count=%" PRId64, text,
                         real              ? "real"
                         : label->rank > 1 ? "pixels"
                                           : "sample",
                         tokens, g->value[loss->in[0]].shape.hi[MEG_C],
                         BATCHES * s->plan->options.batch);
    return meg_session_data(s, text, &s->data);
}

static meg_status time_reading(job *j)
{
    const meg_dataset *d = &j->s.data->set;
    meg_error *e = j->s.error;
    meg_status status = MEG_OK;
    float *sample = malloc((size_t)meg_box_size(&d->sample) * sizeof *sample);
    float *label = malloc((size_t)meg_box_size(&d->label) * sizeof *label);
    double begin = meg_clock();
    for (int64_t i = 0; sample && label && i < j->s.plan->options.batch && !status; i++) {
        status = d->reader->read(d, e, i, &d->sample, sample);
        if (status == MEG_OK) status = d->reader->label(d, e, i, &d->label, label);
    }
    j->reading = meg_clock() - begin;
    if (!sample || !label) status = meg_fail(e, MEG_ENOMEM, "no memory for a sample");
    free(sample);
    free(label);
    return meg_session_agree(&j->s, status);
}

/* What Horovod and PyTorch's benchmarks take: momentum, and a rate at which nothing explodes. */
static meg_status make_ready(job *j)
{
    meg_session *s = &j->s;
    const meg_arguments *a = s->arguments;
    const char *plan = meg_arguments_value(a, MEG_TO_PLAN_FILE, "plan");
    bool plain = meg_arguments_has(a, MEG_TO_PLAN, "momentum") ||
                 meg_arguments_has(a, MEG_TO_PLAN, "optimizer") ||
                 (plan && !meg_named_plan_find(plan)); /* names leave the optimizer open */
    MEG_TRY(s->error, meg_session_graph(s));
    MEG_TRY(s->error, meg_session_plan(s, plain ? "" : "momentum=0.9"));
    MEG_TRY(s->error, open_data(j));
    MEG_TRY(s->error, time_reading(j));
    bool rate = meg_arguments_has(a, MEG_TO_TRAINER, "lr");
    return meg_session_trainer(s, rate ? "" : "lr=0.001");
}

/* ---- measuring ---- */

static bool watch(void *context, const meg_progress *p)
{
    job *j = context;
    meg_measure_add(&j->steps, p->seconds);
    return true;
}

/* One by one: the trainer's own sums then need the same memory in every call, and what is left of
 * the heap's growth is that of the steps. */
static meg_status some_steps(job *j, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        meg_bar_show(&j->bar, j->done++, j->total);
        MEG_TRY(j->s.error, meg_session_said(&j->s, meg_train(j->s.trainer, 1, &j->last)));
    }
    meg_bar_clear(&j->bar);
    return MEG_OK;
}

static meg_status repeat(job *j)
{
    size_t first = j->steps.count;
    MEG_TRY(j->s.error, some_steps(j, j->o->iterations));
    meg_measure mine = {.at = j->steps.at + first, .count = j->steps.count - first};
    double pace = (double)j->s.plan->options.batch / meg_measure_mean(&mine);
    meg_measure_add(&j->repeats, pace);
    if (meg_session_speaks(&j->s))
        fprintf(stderr, "repeat %zu: %.1f images/s\n", j->repeats.count, pace);
    return MEG_OK;
}

static meg_status measure(job *j)
{
    const settings *o = j->o;
    meg_error *e = j->s.error;
    j->total = o->warmup + (o->repeat + o->kernels) * o->iterations;
    meg_bar_begin(&j->bar, "bench: step", meg_session_speaks(&j->s));
    meg_measure_reserve(&j->repeats, (size_t)o->repeat);
    meg_measure_reserve(&j->steps, (size_t)(o->repeat * o->iterations));
    MEG_TRY(e, some_steps(j, 1));
    j->heap = heap_bytes();
    MEG_TRY(e, some_steps(j, o->warmup - 1));
    meg_trainer_watch(j->s.trainer, watch, j);
    double before = meg_engine_exposed(j->s.trainer->engine), cpu = meg_clock_process();
    for (int64_t i = 0; i < o->repeat; i++)
        MEG_TRY(e, repeat(j));
    j->growth = heap_bytes() - j->heap;
    j->exposed = meg_engine_exposed(j->s.trainer->engine) - before;
    j->exposed /= (double)(o->repeat * o->iterations);
    j->cpu = (meg_clock_process() - cpu) / (double)(o->repeat * o->iterations);
    meg_trainer_watch(j->s.trainer, NULL, NULL);
    MEG_TRY(e, meg_ranks_mean(&j->s, &j->cpu));
    return meg_ranks_mean(&j->s, &j->exposed);
}

static meg_status watch_kernels(job *j)
{
    meg_kernels_seen *seen = meg_kernels_begin(j->s.ctx->device);
    meg_status status = some_steps(j, j->o->iterations);
    meg_kernels_end(seen, j->o->iterations, meg_measure_median(&j->steps), j->o->json);
    return status;
}

/* ---- printing ---- */

static void print_json(const job *j)
{
    meg_record r = {0};
    meg_session_record(&j->s, &r);
    meg_record_real(&r, "seconds_per_step", meg_measure_median(&j->steps));
    meg_record_real(&r, "images_per_second", meg_measure_mean(&j->repeats));
    meg_record_real(&r, "images_per_second_deviation", meg_measure_deviation(&j->repeats));
    meg_record_int(&r, "measured_peak_bytes", j->last.measured_peak_bytes);
    meg_record_int(&r, "peak_rss_bytes", j->last.peak_rss_bytes);
    meg_record_real(&r, "cpu_seconds_per_step", j->cpu);
    meg_record_real(&r, "exposed_seconds_per_step", j->exposed);
    meg_record_int(&r, "heap_growth_bytes", j->growth);
    meg_record_real(&r, "reading_seconds_per_batch", j->reading);
    meg_record_real(&r, "loss", j->last.loss);
    meg_record_end(&r);
}

static void print_text(const job *j)
{
    const meg_plan *p = j->s.plan;
    double step = meg_measure_median(&j->steps),
           predicted = meg_needs_seconds(j->s.plan, j->s.needs);
    int64_t bytes = j->last.measured_peak_bytes, planned = j->last.predicted_peak_bytes;
    char rss[32];
    meg_print_bytes(j->last.peak_rss_bytes, rss);
    printf("%s: %.1f +- %.1f images/s (mean and deviation of %zu repeats of %" PRId64 " steps)\n",
           j->s.graph->name, meg_measure_mean(&j->repeats), meg_measure_deviation(&j->repeats),
           j->repeats.count, j->o->iterations);
    printf(
        "  step time                    measured %.4f s (median), predicted %.4f s: ratio %.2f\n",
        step, predicted, predicted > 0 ? step / predicted : 0);
    printf("  peak memory of the arena     measured %" PRId64 " bytes, predicted %" PRId64
           " bytes: difference %" PRId64 "\n",
           bytes, planned, bytes - planned);
    printf("  peak memory of the process   %s\n", rss);
    if (p->world.ranks > 1)
        printf("  exposed communication        %.4f s, %.1f %% of a step (mean of all ranks)\n",
               j->exposed, step > 0 ? 100 * j->exposed / step : 0);
    printf("  heap growth after first step %" PRId64 " bytes\n", j->growth);
    printf("  making a batch               %.4f s, %.2f %% of a step, beside it\n", j->reading,
           step > 0 ? 100 * j->reading / step : 0);
}

static meg_status bench(job *j)
{
    MEG_TRY(j->s.error, make_ready(j));
    if (!j->o->json) meg_ranks_summary(&j->s, stdout);
    MEG_TRY(j->s.error, measure(j));
    if (j->o->kernels) MEG_TRY(j->s.error, watch_kernels(j));
    (j->o->json ? print_json : print_text)(j);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    job j = {.o = a->settings};
    meg_status status = meg_session_open(&j.s, a, e);
    if (status == MEG_OK) status = bench(&j);
    meg_measure_free(&j.steps);
    meg_measure_free(&j.repeats);
    meg_session_close(&j.s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"warmup", MEG_PARAM_INT, AT(warmup), "2", "steps before the clock starts", NULL, 1, 1e9},
    {"iterations", MEG_PARAM_INT, AT(iterations), "5", "steps of a repeat", NULL, 1, 1e9},
    {"repeat", MEG_PARAM_INT, AT(repeat), "3", "repeats; their spread is printed", NULL, 1, 1e6},
    {"kernels", MEG_PARAM_BOOL, AT(kernels), "no", "a table of all kernels by time", NULL, 0, 0},
    {"json", MEG_PARAM_BOOL, AT(json), "no", "results as JSON, one object a line", NULL, 0, 0},
    {0},
};

static bool keeps(const void *state)
{
    return meg_arguments_has(state, MEG_TO_TRAINER, "checkpoint");
}

static bool changes_rate(const void *state)
{
    const char *schedule = meg_arguments_value(state, MEG_TO_TRAINER, "lr_schedule");
    return schedule && strcmp(schedule, "constant") != 0;
}

static const meg_rule RULES[] = {
    {"epochs", NULL, changes_rate, MEG_WARNS,
     "has no effect: --iterations and --repeat say how long bench trains"},
    {"shard", "0", keeps, MEG_WARNS, "has no effect: bench saves nothing without --checkpoint"},
    {0},
};

const meg_command meg_command_bench = {
    .name = "bench",
    .usage = "MODEL [-np N] [--batch N] [--kernels] [--word value ...]",
    .doc = "measures speed and memory of training on synthetic data",
    .more = "Without other words: sgd with momentum=0.9 and lr=0.001.\n",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_TRAINER |
             MEG_TAKES_MODEL | MEG_TAKES_RANKS,
    .priced = true,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
