/* `megalith train MODEL`: says what it will need, trains, evaluates after every epoch, says what it
 * needed, saves.
 */
#include "cli/launch/interrupt.h"
#include "cli/picture.h"
#include "cli/ranks.h"
#include "cli/report/bar.h"
#include "cli/report/meter.h"
#include "cli/session.h"
#include "cli/trace.h"
#include "cli/writable.h"
#include "import/safetensors/safetensors.h"
#include "train/content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char TRAIN_SET[] = "fashion-mnist:split=train",
                  TEST_SET[] = "fashion-mnist:split=test";

enum {
    UNRECORDED = 3, /* steps, before those of which a report shows one */
    RECORDED = 9
};

typedef struct settings {
    const char *data, *test, *save, *load, *trace;
    char report[MEG_TEXT];
    int64_t steps, every;
    bool no_test, json;
} settings;

typedef struct job {
    meg_session s;
    const settings *o;
    meg_data *test;   /* NULL: none */
    meg_trace *trace; /* NULL: none */
    meg_picture picture;
    meg_interrupt interrupt;
    meg_meter meter;
    meg_bar bar;   /* of evaluation */
    int64_t total; /* steps */
    double begin;
    double lr;              /* of the last step; NaN: none was made */
    bool stopped;           /* by an interrupt of any rank */
    bool evaluated;         /* `score` is true of the weights as they are */
    meg_report last, score; /* of the last epoch trained, of the test set */
} job;

/* ---- getting ready ---- */

/* The first rank reads weights, and if there may be a checkpoint perhaps not these. */
static meg_status check_load(const meg_session *s, const char *path)
{
    meg_safetensors *f = NULL;
    bool now = *path && meg_session_speaks(s) &&
               !meg_arguments_has(s->arguments, MEG_TO_TRAINER, "checkpoint");
    if (now) MEG_TRY(s->error, meg_safetensors_open(s->error, path, &f));
    meg_safetensors_close(f);
    return MEG_OK;
}

/* What a checkpoint means for this run. */
static void say_where(const job *j, int64_t step)
{
    FILE *out = j->o->json ? stderr : stdout;
    const char *folder = j->s.trainer->options.checkpoint;
    if (step >= j->total)
        fprintf(out,
                "nothing left to train: the checkpoint in %s is of step %" PRId64 " of %" PRId64
                "; to train further give more %s, to begin anew another --checkpoint folder\n",
                folder, step, j->total, j->o->steps ? "--steps" : "--epochs");
    else fprintf(out, "goes on after step %" PRId64 "\n", step);
    if (j->o->load[0])
        fprintf(out, "--load %s is not read: the weights are those of the checkpoint\n",
                j->o->load);
}

/* Schedules end with the training: --steps without --epochs decides the epochs, too. */
static meg_status make_trainer(job *j)
{
    meg_session *s = &j->s;
    int64_t batch = s->plan->options.batch, count = meg_data_count(s->data);
    int64_t per_epoch = (count + batch - 1) / batch;
    char epochs[64] = "";
    if (j->o->steps && !meg_arguments_has(s->arguments, MEG_TO_TRAINER, "epochs"))
        snprintf(epochs, sizeof epochs, "epochs=%.17g", (double)j->o->steps / (double)per_epoch);
    MEG_TRY(s->error, meg_session_trainer(s, epochs));
    j->total = j->o->steps ? j->o->steps : s->trainer->steps;
    int64_t step = s->trainer->step;
    if (step > 0 && meg_session_speaks(s)) say_where(j, step);
    if (step == 0 && j->o->load[0])
        MEG_TRY(s->error, meg_session_said(s, meg_trainer_load(s->trainer, j->o->load)));
    return MEG_OK;
}

/* A report shows one step of the first ones after those in which caches fill. */
static meg_status watch_steps(job *j)
{
    meg_session *s = &j->s;
    if (j->o->trace[0]) MEG_TRY(s->error, meg_trace_begin(s, j->o->trace, &j->trace));
    meg_listeners trace = j->trace ? meg_trace_listeners(j->trace) : (meg_listeners){0};
    MEG_TRY(s->error, meg_picture_listen(&j->picture, &trace));
    int64_t done = s->trainer->step, left = j->total - done;
    int64_t skipped = left > RECORDED + UNRECORDED ? UNRECORDED : left > 1;
    meg_picture_record(&j->picture, done + skipped + 1, RECORDED);
    return MEG_OK;
}

static meg_status make_ready(job *j)
{
    const settings *o = j->o;
    meg_session *s = &j->s;
    const char *test = o->test[0] || o->data[0] ? o->test : TEST_SET;
    MEG_TRY(s->error, meg_session_agree(s, meg_writable(s->error, o->save)));
    MEG_TRY(s->error, meg_session_agree(s, meg_writable(s->error, o->trace)));
    MEG_TRY(s->error, meg_picture_begin(&j->picture, s, o->report));
    MEG_TRY(s->error, meg_session_agree(s, check_load(s, o->load)));
    MEG_TRY(s->error, meg_session_data(s, o->data[0] ? o->data : TRAIN_SET, &s->data));
    if (*test && !o->no_test) MEG_TRY(s->error, meg_session_data(s, test, &j->test));
    MEG_TRY(s->error, meg_session_graph(s));
    if (j->test) MEG_TRY(s->error, meg_session_agree(s, meg_session_fits(s, j->test)));
    if (j->test) MEG_TRY(s->error, meg_session_said(s, meg_data_same(j->test, true)));
    MEG_TRY(s->error, meg_session_plan(s, ""));
    meg_ranks_summary(s, o->json ? stderr : stdout);
    MEG_TRY(s->error, make_trainer(j));
    return watch_steps(j);
}

/* ---- training ---- */

/* A curve for programs: asked for by --json with --every. */
static void record_step(const settings *o, const meg_progress *p)
{
    if (!o->json || o->every == 0 || p->step % o->every != 0) return;
    meg_record r = {0};
    meg_record_int(&r, "step", p->step);
    meg_record_real(&r, "step_loss", p->loss);
    meg_record_real(&r, "lr", p->lr);
    meg_record_end(&r);
}

static bool watch(void *context, const meg_progress *p)
{
    job *j = context;
    if (meg_session_speaks(&j->s)) meg_meter_step(&j->meter, p);
    j->lr = p->lr;
    record_step(j->o, p);
    if (j->trace) meg_trace_step(j->trace, p);
    meg_picture_step(&j->picture, p);
    return true;
}

static bool asked(void *interrupt)
{
    return meg_interrupt_seen(interrupt);
}

static meg_status evaluate(job *j)
{
    meg_bar_begin(&j->bar, "evaluating", meg_session_speaks(&j->s));
    meg_trainer_count(j->s.trainer, meg_bar_show, &j->bar);
    meg_status status = j->test ? meg_evaluate(j->s.trainer, j->test, &j->score) : MEG_OK;
    meg_bar_clear(&j->bar);
    if (status == MEG_ENAN)
        return meg_fail(j->s.error, status,
                        "the test loss after step %" PRId64 " is not finite: use a smaller lr",
                        j->s.trainer->step);
    j->stopped = status == MEG_EINTERRUPTED;
    if (j->stopped) return MEG_OK;
    j->evaluated = j->test && status == MEG_OK;
    return meg_session_said(&j->s, status);
}

static void record_score(const job *j, meg_record *r)
{
    meg_record_int(r, "step", j->s.trainer->step);
    meg_record_real(r, "epoch", (double)j->s.trainer->step / (double)j->s.trainer->per_epoch);
    double trained = j->last.step > 0 ? 1 : NAN, tested = j->evaluated ? 1 : NAN;
    meg_record_real(r, "loss", trained * j->last.loss); /* what is not known is null */
    meg_record_real(r, "accuracy", trained * j->last.accuracy);
    meg_record_real(r, "test_loss", tested * j->score.loss);
    meg_record_real(r, "test_accuracy", tested * j->score.accuracy);
    meg_record_real(r, "mae", trained * j->last.absolute_error); /* of real targets */
    meg_record_real(r, "test_mae", tested * j->score.absolute_error);
    meg_record_real(r, "lr", j->lr);
}

static void print_epoch(const job *j)
{
    const meg_trainer *t = j->s.trainer;
    meg_duration spent;
    meg_duration_text(meg_clock() - j->begin, spent);
    if (j->o->json) {
        meg_record r = {0};
        record_score(j, &r);
        meg_record_real(&r, "seconds_per_step", j->last.seconds_per_step);
        meg_record_real(&r, "images_per_second", j->last.images_per_second);
        meg_record_real(&r, "seconds", meg_clock() - j->begin);
        meg_record_end(&r);
        return;
    }
    meg_score score;
    meg_score_text(j->last.accuracy, j->last.absolute_error, score);
    printf("epoch %.4g: loss %.4f, %s", (double)t->step / (double)t->per_epoch, j->last.loss,
           score);
    meg_score_text(j->score.accuracy, j->score.absolute_error, score);
    if (j->evaluated) printf(", test loss %.4f, test %s", j->score.loss, score);
    printf(", lr %.4g, %.1f images/s, %s\n", j->lr, j->last.images_per_second, spent);
    fflush(stdout);
}

/* To the end of the epoch, or of training if that comes first. */
static meg_status train_epoch(job *j)
{
    meg_trainer *t = j->s.trainer;
    int64_t steps = t->per_epoch - t->step % t->per_epoch;
    if (steps > j->total - t->step) steps = j->total - t->step;
    j->evaluated = false;
    meg_status status = meg_train(t, steps, &j->last);
    meg_meter_epoch(&j->meter);
    if (status != MEG_EINTERRUPTED) MEG_TRY(j->s.error, meg_session_said(&j->s, status));
    bool seen = meg_interrupt_seen(&j->interrupt) || status == MEG_EINTERRUPTED;
    MEG_TRY(j->s.error, meg_session_any(&j->s, seen, &j->stopped));
    if (j->stopped) return MEG_OK;
    MEG_TRY(j->s.error, evaluate(j));
    if (!j->stopped) print_epoch(j);
    return MEG_OK;
}

/* ---- the end ---- */

/* Of the largest process; before any report this one's. */
static int64_t rss_of(const job *j)
{
    return j->last.peak_rss_bytes > meg_peak_rss() ? j->last.peak_rss_bytes : meg_peak_rss();
}

static void print_final_json(const job *j)
{
    meg_record out = {0};
    meg_record_true(&out, "final");
    if (j->stopped) meg_record_true(&out, "interrupted");
    meg_session_record(&j->s, &out);
    record_score(j, &out);
    meg_record_int(&out, "measured_peak_bytes", j->last.measured_peak_bytes);
    meg_record_int(&out, "peak_rss_bytes", rss_of(j));
    meg_record_real(&out, "seconds_per_step", meg_measure_median(&j->meter.time));
    meg_record_real(&out, "images_per_second", j->last.images_per_second);
    meg_record_real(&out, "seconds", meg_clock() - j->begin);
    meg_record_end(&out);
}

static void print_final_text(const job *j)
{
    const meg_trainer *t = j->s.trainer;
    int64_t bytes = j->last.measured_peak_bytes, planned = j->last.predicted_peak_bytes;
    double step = meg_measure_median(&j->meter.time),
           predicted = meg_needs_seconds(j->s.plan, j->s.needs);
    meg_duration spent;
    char rss[32];
    meg_duration_text(meg_clock() - j->begin, spent);
    meg_print_bytes(rss_of(j), rss);
    printf("%s %s: %" PRId64 " step%s, %.4g epochs, %s\n", j->stopped ? "interrupted" : "trained",
           j->s.graph->name, t->step, t->step == 1 ? "" : "s",
           (double)t->step / (double)t->per_epoch, spent);
    if (j->last.step > 0)
        printf("  peak memory of the arena     measured %" PRId64 " bytes, predicted %" PRId64
               " bytes: difference %" PRId64 "\n",
               bytes, planned, bytes - planned);
    printf("  peak memory of the process   %s\n", rss);
    if (step > 0)
        printf("  step time                    measured %.4f s, predicted %.4f s: ratio %.2f\n",
               step, predicted, predicted > 0 ? step / predicted : 0);
    if (!j->evaluated) return;
    if (isnan(j->score.accuracy))
        printf("  test MAE                     %.4g, loss %.4f\n", j->score.absolute_error,
               j->score.loss);
    else
        printf("  test accuracy                %.2f %%, loss %.4f\n", 100 * j->score.accuracy,
               j->score.loss);
}

static meg_status finish(job *j)
{
    meg_session *s = &j->s;
    const char *folder = s->trainer->options.checkpoint;
    bool checked = *folder && s->trainer->step > 0;
    if (checked) MEG_TRY(s->error, meg_session_said(s, meg_trainer_checkpoint(s->trainer)));
    if (!j->evaluated && !j->stopped) MEG_TRY(s->error, evaluate(j));
    (j->o->json ? print_final_json : print_final_text)(j);
    bool saves = j->o->save[0] && (s->trainer->step > 0 || !j->stopped);
    if (saves) MEG_TRY(s->error, meg_session_save(s, j->o->save));
    MEG_TRY(s->error, meg_picture_end(&j->picture, meg_measure_median(&j->meter.time)));
    if (j->trace) {
        meg_trace *t = j->trace;
        j->trace = NULL;
        MEG_TRY(s->error, meg_trace_end(t));
    }
    if (!j->stopped) return MEG_OK;
    return meg_fail(s->error, MEG_EINTERRUPTED, "interrupted after step %" PRId64 "; %s%s",
                    s->trainer->step,
                    saves     ? "the weights are in "
                    : checked ? "its checkpoint is in "
                              : "nothing was saved",
                    saves     ? j->o->save
                    : checked ? folder
                              : "");
}

static meg_status train(job *j)
{
    meg_trainer *t = j->s.trainer;
    j->begin = meg_clock();
    meg_meter_begin(&j->meter, j->o->every, j->total, t->per_epoch);
    meg_trainer_watch(t, watch, j);
    meg_trainer_ask(t, asked, &j->interrupt);
    bool seen = meg_interrupt_seen(&j->interrupt);
    MEG_TRY(j->s.error, meg_session_any(&j->s, seen, &j->stopped));
    while (t->step < j->total && !j->stopped)
        MEG_TRY(j->s.error, train_epoch(j));
    return finish(j);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    job j = {.o = a->settings, .lr = NAN};
    meg_interrupt_begin(&j.interrupt, meg_arguments_value(a, MEG_TO_TRAINER, "checkpoint"));
    meg_status status = meg_session_open(&j.s, a, e);
    if (status == MEG_OK) status = make_ready(&j);
    if (status == MEG_OK) status = train(&j);
    meg_meter_end(&j.meter);
    meg_picture_drop(&j.picture);
    meg_trace_drop(j.trace);
    meg_data_free(j.test);
    meg_session_close(&j.s);
    meg_interrupt_end(&j.interrupt);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"data", MEG_PARAM_STRING, AT(data), "",
     "READER:WORDS to train on, `megalith list readers` (fashion-mnist:split=train)", NULL, 0, 0},
    {"test", MEG_PARAM_STRING, AT(test), "",
     "READER:WORDS to evaluate on (fashion-mnist:split=test; with --data: nothing)", NULL, 0, 0},
    {"no_test", MEG_PARAM_BOOL, AT(no_test), "no", "do not evaluate", NULL, 0, 0},
    {"steps", MEG_PARAM_INT, AT(steps), "0", "train so many steps (0: as many as epochs= says)",
     NULL, 0, 1e15},
    {"save", MEG_PARAM_STRING, AT(save), "",
     "file for the weights, at the end: .onnx with the network, else safetensors", NULL, 0, 0},
    {"load", MEG_PARAM_STRING, AT(load), "", "safetensors file with weights to begin with", NULL, 0,
     0},
    {"trace", MEG_PARAM_STRING, AT(trace), "",
     "file for a trace of all kernels and messages (ui.perfetto.dev)", NULL, 0, 0},
    {"report", MEG_PARAM_TEXT, AT(report), "",
     "HTML file with pictures: timelines, predicted and measured, memory, alternatives", NULL, 0,
     0},
    {"every", MEG_PARAM_INT, AT(every), "0", "steps between lines of progress (0: by itself)", NULL,
     0, 1e15},
    {"json", MEG_PARAM_BOOL, AT(json), "no", "results as JSON, one object a line", NULL, 0, 0},
    {0},
};

/* ---- words without effect ---- */

static bool has_steps(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return o->steps > 0;
}

static bool evaluates(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return !o->no_test;
}

static bool saves(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return o->save[0] || meg_arguments_has(state, MEG_TO_TRAINER, "checkpoint");
}

/* With steps= the epochs only shape the schedule of the learning rate. */
static bool needs_epochs(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    const char *schedule = meg_arguments_value(state, MEG_TO_TRAINER, "lr_schedule");
    return o->steps == 0 || (schedule && strcmp(schedule, "constant") != 0);
}

static bool does_anything(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    const char *epochs = meg_arguments_value(state, MEG_TO_TRAINER, "epochs");
    bool tests = !o->no_test && (o->test[0] || !o->data[0]);
    return o->steps || o->save[0] || tests || (epochs && strtod(epochs, NULL) > 0);
}

/* --epochs 0 evaluates, likely by a script that gives the words of training, too. */
static bool trains(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    const char *epochs = meg_arguments_value(state, MEG_TO_TRAINER, "epochs");
    return o->steps || !epochs || strtod(epochs, NULL) > 0;
}

/* A checkpoint knows its optimizer, and fits no other. */
static bool needs_optimizer(const void *state)
{
    return trains(state) || meg_arguments_has(state, MEG_TO_TRAINER, "checkpoint");
}

static const char UNTRAINED[] =
    "has no effect: with --epochs 0 nothing is trained; leave one of them out";

static const meg_rule RULES[] = {
    {"lr", NULL, trains, MEG_WARNS, UNTRAINED},
    {"lr_schedule", "constant", trains, MEG_WARNS, UNTRAINED},
    {"warmup", "0", trains, MEG_WARNS, UNTRAINED},
    {"shuffle", "yes", trains, MEG_WARNS, UNTRAINED},
    {"shift", "0", trains, MEG_WARNS, UNTRAINED},
    {"flip", "no", trains, MEG_WARNS, UNTRAINED},
    {"checkpoint_every", "0", trains, MEG_WARNS, UNTRAINED},
    {"every", "0", trains, MEG_WARNS, UNTRAINED},
    {"optimizer", "sgd", needs_optimizer, MEG_WARNS, UNTRAINED},
    {"momentum", "0", needs_optimizer, MEG_WARNS, UNTRAINED},
    {"weight_decay", "0", needs_optimizer, MEG_WARNS, UNTRAINED},
    {"epochs", NULL, does_anything, MEG_REFUSES,
     "trains nothing, and without --test or --save nothing else is done"},
    {"steps", NULL, has_steps, MEG_REFUSES,
     "trains nothing: use 1 or more, leave it out to train --epochs, or give --epochs 0 to "
     "evaluate "
     "alone"},
    {"test", NULL, evaluates, MEG_WARNS, "has no effect with --no-test: leave one of them out"},
    {"shard", "0", saves, MEG_WARNS,
     "has no effect: nothing is saved without --save or --checkpoint"},
    {"epochs", NULL, needs_epochs, MEG_WARNS,
     "has no effect: --steps says when training ends, and the learning rate is constant"},
    {0},
};

const meg_command meg_command_train = {
    .name = "train",
    .usage = "MODEL [--data READER:WORDS] [--word value ...]",
    .doc = "trains a model, evaluates it after every epoch, saves its weights",
    .more =
        "MODEL is a name (`megalith list models`) or an ONNX file, whose weights it begins with.\n"
        "Ctrl-C finishes the step, saves and ends with exit code 130; a second one ends at once.\n"
        "image= and classes= of the model are those of the data, unless given.\n",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_TRAINER |
             MEG_TAKES_MODEL | MEG_TAKES_RANKS,
    .stops = true,
    .priced = true,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
