/* `megalith bench MODEL`: speed and memory of training on synthetic data, as Horovod's benchmark
 * measures it: warm-up steps, then repeats of a number of steps; images/s of each repeat.
 *
 * How long making a batch takes, beside a step, is printed, so that it can be seen not to matter.
 * Kernels are watched in a repeat of their own, which does not count.
 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "cli/picture.h"
#include "cli/ranks.h"
#include "cli/report/kernel.h"
#include "cli/trial.h"
#include "exec/meters/drift.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUNCHES = 6, /* of turns of the reference loop, at least: some 40 ms */
    BUNCHES_MOST = 100
};

typedef struct settings {
    int64_t warmup, iterations, repeat;
    char report[MEG_TEXT];
    bool kernels, json, reference;
} settings;

typedef struct job {
    meg_session s;
    const settings *o;
    meg_trial_run trial;
    meg_march march;
    meg_measure repeats;  /* images/s of each */
    meg_measure rounds;   /* seconds of a step, the median of each repeat */
    meg_measure loops;    /* of a turn of the reference loop, before the first repeat and after each, */
    meg_measure works;    /* and of the worker's own time in it */
    meg_drift *drift;     /* NULL: it is not asked for */
    int bunches;          /* of turns of its loop */
    meg_picture picture;
    double reading;       /* seconds to make one batch */
    double cpu;           /* seconds of processor time of a step, of a rank */
    double exposed;       /* seconds of a step in which communication keeps a device waiting */
    int64_t heap, growth; /* bytes in use after the first step, and more at the end */
} job;

static int64_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd);
}

/* ---- getting ready ---- */

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

static meg_status make_ready(job *j)
{
    meg_session *s = &j->s;
    const meg_arguments *a = s->arguments;
    const char *plan = meg_arguments_value(a, MEG_TO_PLAN_FILE, "plan");
    MEG_TRY(s->error, meg_picture_begin(&j->picture, s, j->o->report));
    MEG_TRY(s->error, meg_session_graph(s));
    MEG_TRY(s->error, meg_session_plan(s, meg_trial_words(a, plan)));
    MEG_TRY(s->error, meg_trial_data(s, s->plan, &s->data));
    MEG_TRY(s->error, time_reading(j));
    bool rate = meg_arguments_has(a, MEG_TO_TRAINER, "lr");
    MEG_TRY(s->error, meg_session_trainer(s, rate ? "" : meg_trial_rate));
    j->trial.trainer = s->trainer;
    return MEG_OK;
}

/* ---- measuring ---- */

static meg_status some_steps(job *j, int64_t steps, bool counts)
{
    return meg_session_said(&j->s, meg_trial_steps(&j->trial, &j->march, steps, counts));
}

/* The pace of a machine that others use changes from one moment to the next: what is looked at for a moment only is
 * not the pace of the steps beside it. So the loop takes half as long as they. */
static meg_status set_loop(job *j, double steps)
{
    meg_drift_time now;
    meg_error *e = j->s.error;
    if (!j->drift) return MEG_OK;
    MEG_TRY(e, meg_drift_look(j->drift, e, BUNCHES, &now));
    double bunches = 0.5 * steps / (now.wall * MEG_DRIFT_BUNCH);
    j->bunches = (int)fmin(fmax(bunches, BUNCHES), BUNCHES_MOST);
    return meg_comm_share(j->s.ctx->comm, e, 0, &j->bunches, sizeof j->bunches);
}

static meg_status look_at_machine(job *j)
{
    meg_drift_time now;
    if (!j->drift) return MEG_OK;
    MEG_TRY(j->s.error, meg_drift_look(j->drift, j->s.error, j->bunches, &now));
    meg_measure_add(&j->loops, now.wall);
    meg_measure_add(&j->works, now.work);
    return MEG_OK;
}

static meg_status repeat(job *j)
{
    size_t first = j->trial.steps.count;
    MEG_TRY(j->s.error, some_steps(j, j->o->iterations, true));
    meg_measure mine = {.at = j->trial.steps.at + first, .count = j->trial.steps.count - first};
    double pace = (double)j->s.plan->options.batch / meg_measure_mean(&mine);
    meg_measure_add(&j->repeats, pace);
    meg_measure_add(&j->rounds, meg_measure_median(&mine));
    MEG_TRY(j->s.error, look_at_machine(j));
    if (meg_session_speaks(&j->s))
        fprintf(stderr, "repeat %zu: %.1f images/s\n", j->repeats.count, pace);
    return MEG_OK;
}

static meg_status measure(job *j)
{
    const settings *o = j->o;
    meg_error *e = j->s.error;
    bool pictured = o->report[0];
    j->march.total = o->warmup + (o->repeat + o->kernels + pictured) * o->iterations;
    meg_bar_begin(&j->march.bar, "bench: step", meg_session_speaks(&j->s));
    meg_measure_reserve(&j->repeats, (size_t)o->repeat);
    meg_measure_reserve(&j->rounds, (size_t)o->repeat);
    meg_measure_reserve(&j->loops, (size_t)o->repeat + 1);
    meg_measure_reserve(&j->works, (size_t)o->repeat + 1);
    meg_measure_reserve(&j->trial.steps, (size_t)(o->repeat * o->iterations));
    MEG_TRY(e, some_steps(j, 1, false));
    j->heap = heap_bytes();
    double begin = meg_clock();
    MEG_TRY(e, some_steps(j, o->warmup - 1, false));
    double each = o->warmup > 1 ? (meg_clock() - begin) / (double)(o->warmup - 1) : 0;
    MEG_TRY(e, set_loop(j, each * (double)o->iterations));
    double before = meg_engine_exposed(j->s.trainer->engine), cpu = meg_clock_process();
    MEG_TRY(e, look_at_machine(j));
    for (int64_t i = 0; i < o->repeat; i++)
        MEG_TRY(e, repeat(j));
    j->growth = heap_bytes() - j->heap;
    j->exposed = meg_engine_exposed(j->s.trainer->engine) - before;
    j->exposed /= (double)(o->repeat * o->iterations);
    j->cpu = (meg_clock_process() - cpu) / (double)(o->repeat * o->iterations);
    MEG_TRY(e, meg_ranks_mean(&j->s, &j->cpu));
    return meg_ranks_mean(&j->s, &j->exposed);
}

static meg_status watch_kernels(job *j)
{
    meg_kernels_seen *seen = meg_kernels_begin(j->s.ctx->device);
    meg_status status = some_steps(j, j->o->iterations, false);
    meg_kernels_end(seen, j->o->iterations, meg_measure_median(&j->trial.steps), j->o->json);
    return status;
}

static bool record(void *context, const meg_progress *p)
{
    job *j = context;
    meg_picture_step(&j->picture, p);
    return true;
}

/* In a repeat of its own, which does not count either. */
static meg_status watch_steps(job *j)
{
    meg_session *s = &j->s;
    if (!j->o->report[0]) return MEG_OK;
    MEG_TRY(s->error, meg_picture_listen(&j->picture, NULL));
    meg_picture_record(&j->picture, s->trainer->step + 1, j->o->iterations);
    meg_trainer_watch(s->trainer, record, j);
    MEG_TRY(s->error, some_steps(j, j->o->iterations, false));
    return meg_picture_end(&j->picture, meg_measure_median(&j->trial.steps));
}

/* ---- printing ---- */

static void print_json(const job *j)
{
    meg_record r = {0};
    meg_session_record(&j->s, &r);
    meg_record_real(&r, "seconds_per_step", meg_measure_median(&j->trial.steps));
    meg_record_real(&r, "images_per_second", meg_measure_mean(&j->repeats));
    meg_record_real(&r, "images_per_second_deviation", meg_measure_deviation(&j->repeats));
    meg_record_int(&r, "measured_peak_bytes", j->trial.last.measured_peak_bytes);
    meg_record_int(&r, "peak_rss_bytes", j->trial.last.peak_rss_bytes);
    meg_record_real(&r, "cpu_seconds_per_step", j->cpu);
    meg_record_real(&r, "exposed_seconds_per_step", j->exposed);
    meg_record_int(&r, "heap_growth_bytes", j->growth);
    meg_record_real(&r, "reading_seconds_per_batch", j->reading);
    meg_record_real(&r, "loss", j->trial.last.loss);
    meg_record_reals(&r, "rounds", j->rounds.at, j->rounds.count);
    if (j->drift) {
        meg_record_reals(&r, "loops", j->loops.at, j->loops.count);
        meg_record_reals(&r, "loop_works", j->works.at, j->works.count);
    }
    meg_record_end(&r);
}

static void print_text(const job *j)
{
    const meg_plan *p = j->s.plan;
    double step = meg_measure_median(&j->trial.steps),
           predicted = meg_needs_seconds(j->s.plan, j->s.needs);
    int64_t bytes = j->trial.last.measured_peak_bytes, planned = j->trial.last.predicted_peak_bytes;
    char rss[32];
    meg_print_bytes(j->trial.last.peak_rss_bytes, rss);
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
    meg_context *ctx = j->s.ctx;
    meg_status status = MEG_OK;
    if (j->o->reference) status = meg_drift_new(ctx->device, ctx->comm, j->s.error, &j->drift);
    MEG_TRY(j->s.error, meg_session_agree(&j->s, status));
    if (!j->o->json) meg_ranks_summary(&j->s, stdout);
    MEG_TRY(j->s.error, measure(j));
    if (j->o->kernels) MEG_TRY(j->s.error, watch_kernels(j));
    MEG_TRY(j->s.error, watch_steps(j));
    (j->o->json ? print_json : print_text)(j);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    job j = {.o = a->settings};
    meg_status status = meg_session_open(&j.s, a, e);
    if (status == MEG_OK) status = bench(&j);
    meg_measure_free(&j.trial.steps);
    meg_measure_free(&j.repeats);
    meg_measure_free(&j.rounds);
    meg_measure_free(&j.loops);
    meg_measure_free(&j.works);
    meg_drift_free(j.drift);
    meg_picture_drop(&j.picture);
    meg_session_close(&j.s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"warmup", MEG_PARAM_INT, AT(warmup), "2", "steps before the clock starts", NULL, 1, 1e9},
    {"iterations", MEG_PARAM_INT, AT(iterations), "5", "steps of a repeat", NULL, 1, 1e9},
    {"repeat", MEG_PARAM_INT, AT(repeat), "3", "repeats; their spread is printed", NULL, 1, 1e6},
    {"kernels", MEG_PARAM_BOOL, AT(kernels), "no", "a table of all kernels by time", NULL, 0, 0},
    {"reference", MEG_PARAM_BOOL, AT(reference), "no",
     "a fixed loop before and after each repeat tells how busy the machine is (with --json: loops)",
     NULL, 0, 0},
    {"report", MEG_PARAM_TEXT, AT(report), "",
     "HTML file with pictures: timelines, predicted and measured, memory, alternatives", NULL, 0,
     0},
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
