/* The trainer: see trainer.h. */
#include "train/trainer.h"
#include "base/clock.h"
#include "base/random.h"
#include "machine/memory.h"
#include "train/advice.h"
#include "train/content.h"
#include "train/rules.h"
#include "train/step/taken.h"
#include "train/step/wants.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- making ---- */

/* Epochs are of a data set; without one there are only steps. */
static meg_status prepare_data(meg_trainer *t)
{
    meg_error *e = &t->ctx->error;
    int64_t batch = t->plan->entry[MEG_ENTRY_TRAIN].batch;
    int64_t tail = t->plan->entry[MEG_ENTRY_TRAIN_TAIL].batch, count = t->data->set.count;
    MEG_TRY(e, meg_data_fits(t->data, t->plan->source));
    MEG_CHECK(e, count % batch == tail, MEG_EARG,
              "%s has %" PRId64
              " samples, but the plan was made for another count: give meg_plan_new"
              " the data set that is trained on",
              t->data->set.source, count);
    t->per_epoch = (count + batch - 1) / batch;
    t->steps = (int64_t)(t->options.schedule.epochs * (double)t->per_epoch + 0.5);
    if (meg_graph_late(t->plan->source)) return MEG_OK; /* batches come from the caller */
    t->reading = meg_wants_of(t->plan, MEG_ENTRY_TRAIN, MEG_ENTRY_TRAIN_TAIL);
    meg_wants_bind(&t->reading, t->plan, &t->data->set);
    meg_loader_options o = {.batch = batch,
                            .shuffle = t->options.shuffle,
                            .shift = t->options.shift,
                            .flip = t->options.flip,
                            .seed = (uint64_t)t->ctx->options.seed,
                            .wants = t->reading.count,
                            .want = t->reading.want};
    return t->reading.any ? meg_loader_new(e, &t->data->set, &o, &t->loader) : MEG_OK;
}

/* What a rank can do wrong on its own. */
static meg_status prepare(meg_trainer *t, const char *options)
{
    meg_error *e = &t->ctx->error;
    const meg_trainer_words words = {t->pool, &t->ctx->log, t->data ? &t->data->set : NULL};
    MEG_TRY(e, meg_trainer_read(&words, e, options, &t->options));
    if (!meg_options_has(options, "lr")) t->options.schedule.lr = t->plan->optimizer->lr;
    if (t->data) return prepare_data(t);
    MEG_CHECK(
        e, t->options.schedule.kind == MEG_LR_CONSTANT && t->options.schedule.warmup == 0, MEG_EARG,
        "lr_schedule= and warmup= count epochs, but there is no data set: give meg_trainer_new "
        "one, or set the rate of each step (meg_trainer_lr)");
    t->per_epoch = 1;
    return MEG_OK;
}

typedef struct need { /* of a rank */
    int64_t bytes;
    uint64_t owner; /* of the limit that it is under */
} need;

/* Ranks of one machine share its memory, or that of a control group: the kernel would grant each what it asks for, and kill one when
 * all have written to it. */
static meg_status check_machine(meg_trainer *t)
{
    meg_comm *c = t->ctx->comm;
    meg_error *e = &t->ctx->error;
    int ranks = meg_comm_size(c), here = 0;
    const int *node = meg_comm_node(c);
    meg_memory m = meg_memory_look("");
    need mine = {t->plan->arena, m.owner}, *all = calloc((size_t)ranks, sizeof *all);
    int64_t sum = 0, most = m.most;
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory to compare %d ranks", ranks);
    meg_status status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    for (int r = 0; r < ranks; r++)
        if (node[r] == node[meg_comm_rank(c)] && all[r].owner == m.owner)
            sum += all[r].bytes, here++;
    free(all);
    MEG_TRY(e, status);
    char text[2][32];
    meg_print_bytes(sum, text[0]);
    meg_print_bytes(most, text[1]);
    MEG_CHECK(e, here > 1 || sum <= most, MEG_ENOMEM,
              "%s needs %" PRId64 " bytes (%s), but this machine has %s for it: %" PRId64
              " bytes are missing",
              t->plan->source->name, sum, text[0], text[1], sum - most);
    MEG_CHECK(e, sum <= most, MEG_ENOMEM,
              "%d ranks on one machine need %" PRId64 " bytes (%s), but it has %s: %" PRId64
              " bytes are missing",
              here, sum, text[0], text[1], sum - most);
    return MEG_OK;
}

/* Where the machine is too small, what would fit is said. */
static meg_status check_fits(meg_trainer *t)
{
    const meg_plan *p = t->plan;
    meg_status status = meg_context_agree(t->ctx, check_machine(t));
    if (status != MEG_ENOMEM) return status;
    meg_pool *pool = meg_pool_new();
    const char *words = meg_plan_words(p, pool);
    meg_context_advise(p->source, t->data,
                       &(meg_too_large){words, p->world.ranks, meg_arena_most()});
    meg_pool_free(pool);
    return status;
}

static meg_status build(meg_trainer *t)
{
    meg_error *e = &t->ctx->error;
    MEG_TRY(e, meg_engine_new(t->plan, t->ctx->device, t->ctx->comm, e, MEG_FILL, &t->engine));
    meg_engine_start(t->engine, (uint64_t)t->ctx->options.seed);
    const char *unsound = meg_engine_unsound(t->engine);
    MEG_CHECK(
        e, !unsound, MEG_EDATA,
        "%s: %s has numbers that are not finite: nothing could be saved after training; mend the "
        "file, or freeze=%s if it is a mask",
        t->plan->source->name, unsound, unsound);
    return MEG_OK;
}

/* Where training stands. */
static meg_position position(const meg_trainer *t)
{
    return (meg_position){t->step, t->per_epoch, t->data ? t->data->set.count : 0,
                          t->ctx->options.seed};
}

static meg_status resume(meg_trainer *t)
{
    meg_error *e = &t->ctx->error;
    meg_position at = position(t);
    meg_checkpoints_options o = {.folder = t->options.checkpoint,
                                 .keep = t->options.keep,
                                 .shard = t->options.shard,
                                 .resume = t->options.resume,
                                 .log = t->ctx->log};
    if (!t->options.checkpoint[0]) return MEG_OK;
    MEG_TRY(e, meg_checkpoints_open(t->engine, t->ctx->comm, e, &o, &t->checkpoints));
    MEG_TRY(e, meg_checkpoint_resume(t->checkpoints, e, &at));
    t->step = at.step;
    return MEG_OK;
}

meg_status meg_trainer_checkpoint(meg_trainer *t)
{
    meg_position at = position(t);
    MEG_CHECK(&t->ctx->error, t->checkpoints, MEG_EARG,
              "there is no folder for checkpoints: give meg_trainer_new checkpoint=FOLDER");
    return meg_checkpoint_write(t->checkpoints, &t->ctx->error, &at);
}

static bool checkpoint_due(const meg_trainer *t)
{
    int64_t every = t->options.checkpoint_every ? t->options.checkpoint_every : t->per_epoch;
    return t->checkpoints && (t->step % every == 0 || t->step == t->steps);
}

static bool each_reads(const meg_plan *p)
{
    return p->options.feed == MEG_FEED_EACH;
}

/* By the first loss. */
static meg_judged judged_of(const meg_graph *g)
{
    if (g->losses == 0) return (meg_judged){.labels = 1, .real = true};
    const meg_node *loss = &g->node[g->value[g->loss[0].value].maker];
    const meg_value *label = &g->value[loss->in[1]];
    return (meg_judged){.labels = meg_box_size(&label->shape) / meg_extent(&label->shape, MEG_N),
                        .classes = meg_graph_kinds(g, label->id),
                        .real = loss->op->real_target};
}

meg_status meg_trainer_new(meg_plan *p, meg_data *d, const char *options, meg_trainer **out)
{
    meg_context *ctx = p->owner;
    meg_token same[] = {{"other options of the trainer", meg_hash(options ? options : "")},
                        {"another number of samples", d ? (uint64_t)d->set.count : 0}};
    MEG_TRY(&ctx->error, meg_context_same(ctx, same, 2));
    meg_trainer *t = calloc(1, sizeof *t);
    if (t)
        *t = (meg_trainer){.ctx = ctx,
                           .plan = p,
                           .data = d,
                           .pool = meg_pool_new(),
                           .rate = -1,
                           .seed = (uint64_t)ctx->options.seed,
                           .judged = judged_of(p->source)};
    meg_status status = t ? prepare(t, options)
                          : meg_fail(&ctx->error, MEG_ENOMEM, "no memory for a trainer");
    status = meg_context_agree(ctx, status);
    if (status == MEG_OK && d) status = meg_data_same(d, t->reading.any || each_reads(p));
    if (status == MEG_OK) status = check_fits(t);
    if (status == MEG_OK) status = meg_context_agree(ctx, build(t));
    if (status == MEG_OK) status = resume(t);
    if (status == MEG_OK) *out = t;
    else meg_trainer_free(t);
    return status;
}

void meg_trainer_free(meg_trainer *t)
{
    if (!t) return;
    meg_checkpoints_close(t->checkpoints);
    meg_engine_free(t->engine);
    meg_loader_free(t->loader);
    meg_filled_free(&t->filled);
    if (t->hand) t->drop_hand(t->hand);
    meg_pool_free(t->pool);
    free(t);
}

void meg_trainer_watch(meg_trainer *t, meg_watcher *watcher, void *context)
{
    t->watcher = watcher;
    t->watcher_context = context;
}

void meg_trainer_ask(meg_trainer *t, meg_wish *asked, void *context)
{
    t->asked = asked;
    t->asked_context = context;
}

void meg_trainer_count(meg_trainer *t, meg_counter *counter, void *context)
{
    t->counter = counter;
    t->counter_context = context;
}

/* ---- sums over the steps of one call ---- */

typedef struct tally {
    double loss, correct, error, samples, seconds;
    double *time; /* of each step */
    size_t times, room;
} tally;

static void count_step(tally *y, const meg_outcome *o, int64_t samples, double seconds)
{
    y->loss += o->loss * (double)samples;
    y->correct += o->correct;
    y->error += o->error * (double)samples;
    y->samples += (double)samples;
    y->seconds += seconds;
    y->time = meg_grow(y->time, &y->room, y->times + 1, sizeof *y->time);
    y->time[y->times++] = seconds;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Collective, since memory is that of the rank which needs most. */
static meg_status report(const meg_trainer *t, tally *y, double predicted, meg_report *out)
{
    meg_taken m = {t->plan->arena, meg_engine_touched(t->engine), 0};
    MEG_TRY(&t->ctx->error, meg_taken_gather(t->ctx->comm, &t->ctx->error, &m));
    qsort(y->time, y->times, sizeof *y->time, ascending);
    double samples = y->samples > 0 ? y->samples : 1;
    *out = (meg_report){.step = t->step,
                        .loss = y->loss / samples,
                        .accuracy = t->judged.real ? NAN : y->correct / samples,
                        .absolute_error = t->judged.real ? y->error / samples : NAN,
                        .seconds_per_step = y->times ? y->time[y->times / 2] : 0,
                        .images_per_second = y->seconds > 0 ? y->samples / y->seconds : 0,
                        .predicted_seconds_per_step = predicted,
                        .predicted_peak_bytes = m.planned,
                        .measured_peak_bytes = m.touched,
                        .peak_rss_bytes = m.rss};
    return MEG_OK;
}

meg_status meg_trainer_report(const meg_trainer *t, const meg_one_step *s, meg_report *out)
{
    tally y = {0};
    meg_outcome o = *s->outcome;
    o.correct /= (double)t->judged.labels;
    count_step(&y, &o, s->samples, s->seconds);
    meg_status status = report(t, &y, s->predicted, out);
    free(y.time);
    return status;
}

double meg_trainer_rate(const meg_trainer *t)
{
    double each = 1 / (double)t->per_epoch;
    return t->rate >= 0 ? t->rate : meg_lr_rate(&t->options.schedule, (double)t->step * each, each);
}

void meg_trainer_lr(meg_trainer *t, double lr)
{
    t->rate = lr;
}

void meg_trainer_go_on(meg_trainer *t, int64_t step, int64_t seed)
{
    t->step = step;
    t->seed = (uint64_t)(seed < 0 ? t->ctx->options.seed : seed);
}

/* ---- training ---- */

typedef struct pass_over { /* a data set */
    meg_loader *loader;    /* NULL: this rank needs nothing of it */
    const meg_data *data;
    int64_t batch, epoch;
} pass_over;

/* Batch `index` of a pass; without a loader only how many samples it has. */
static meg_status take_batch(const meg_trainer *t, const pass_over *pass, int64_t index,
                             meg_batch *out)
{
    meg_error *e = &t->ctx->error;
    int64_t rest = pass->data->set.count - index * pass->batch;
    if (pass->loader)
        return meg_context_end(t->ctx, meg_loader_next(pass->loader, e, pass->epoch, index, out));
    *out = (meg_batch){.count = rest < pass->batch ? rest : pass->batch};
    return MEG_OK;
}

static bool asked(void *context)
{
    const meg_trainer *t = context;
    return t->asked && t->asked(t->asked_context);
}

/* Of the watcher, after an earlier step, or of now. */
static bool wishes(void *context)
{
    const meg_trainer *t = context;
    return t->wish || asked(context);
}

static meg_status run_step(meg_trainer *t, const meg_batch *batch, double lr)
{
    meg_feed feed = {.scalars = {lr, (double)(t->step + 1), 0, 1},
                     .seed = t->seed,
                     .step = (uint64_t)t->step,
                     .wish = wishes,
                     .context = t};
    bool whole = batch->count == t->plan->entry[MEG_ENTRY_TRAIN].batch;
    int entry = whole ? MEG_ENTRY_TRAIN : MEG_ENTRY_TRAIN_TAIL;
    meg_status status = meg_filled_take(&t->filled, &t->ctx->error, batch, batch->count, &feed);
    if (status != MEG_OK) return meg_context_end(t->ctx, status);
    return meg_context_end(t->ctx, meg_engine_run(t->engine, &t->ctx->error, entry, &feed));
}

/* All ranks stop after the same step: alone at once, else when a step has told the others. */
static bool stops(meg_trainer *t, const meg_progress *p, const meg_outcome *o)
{
    if (t->watcher && !t->watcher(t->watcher_context, p)) t->wish = true;
    bool stop = o->wish || (meg_comm_size(t->ctx->comm) == 1 && t->wish);
    if (stop) t->wish = false;
    return stop;
}

/* Warns once of a loss that is far past its start: the mean of some ten steps is four times that of
 * the first. For classes the start is no less than the loss of a guess, log(classes), so that good
 * weights to begin with, whose first loss may be anything small, raise no alarm. */
static void watch_growth(meg_trainer *t, const meg_late_step *s, double loss)
{
    static const double FAR = 4, MEMORY = 0.9;
    meg_growth *g = &t->growth;
    const meg_judged *j = &t->judged;
    if (g->start == 0) {
        double guess = j->real ? 0 : log(j->classes > 2 ? (double)j->classes : 2);
        *g = (meg_growth){.start = fmax(loss, guess), .mean = loss};
        return;
    }
    g->mean = MEMORY * g->mean + (1 - MEMORY) * loss;
    if (g->told || g->mean <= FAR * g->start) return;
    g->told = true;
    meg_log(&t->ctx->log, MEG_WARN,
            "the loss has grown far past its start, %.4g, to %.4g at step %" PRId64
            ": use a smaller lr (now %g) or a warm-up",
            g->start, loss, s->number, s->lr);
}

/* What became of the late step, if there is one. Waiting for it is its own time. */
static meg_status take_outcome(meg_trainer *t, tally *y, bool *stop)
{
    meg_error *e = &t->ctx->error;
    const meg_late_step s = t->late;
    meg_outcome o = {0};
    double begin = meg_clock();
    if (!s.number) return MEG_OK;
    t->late.number = 0;
    meg_status status = meg_engine_outcome(t->engine, e, &o);
    if (status == MEG_ENAN) /* of all ranks */
        return meg_fail(e, MEG_ENAN,
                        "the loss of step %" PRId64 " is %f: training stops; use a smaller lr "
                        "(now %g) or a warm-up",
                        s.number, o.loss, s.lr);
    MEG_TRY(e, meg_context_end(t->ctx, status));
    double seconds = s.seconds + meg_clock() - begin;
    o.correct /= (double)t->judged.labels;
    count_step(y, &o, s.samples, seconds);
    watch_growth(t, &s, o.loss);
    bool real = t->judged.real;
    meg_progress p = {.step = s.number,
                      .steps = t->steps,
                      .epoch = (double)s.number / (double)t->per_epoch,
                      .loss = o.loss,
                      .accuracy = real ? NAN : o.correct / (double)s.samples,
                      .error = real ? o.error : NAN,
                      .seconds = seconds,
                      .lr = s.lr,
                      .samples = s.samples,
                      .begin = s.begin,
                      .end = s.begin + s.seconds};
    *stop = stops(t, &p, &o) || *stop;
    return MEG_OK;
}

/* The epoch before has ended by then, with all its losses. */
static meg_status begin_epoch(meg_trainer *t, tally *y, bool *stop)
{
    MEG_TRY(&t->ctx->error, take_outcome(t, y, stop));
    meg_progress p = {.begins = true,
                      .step = t->step,
                      .steps = t->steps,
                      .epoch = (double)(t->step / t->per_epoch)};
    if (!*stop && !t->watcher(t->watcher_context, &p)) t->wish = true;
    return MEG_OK;
}

/* With many ranks, losses are summed up while the next step runs: nobody waits for them. */
static meg_status train_step(meg_trainer *t, tally *y, bool *stop)
{
    meg_error *e = &t->ctx->error;
    meg_batch batch;
    double begin = meg_clock();
    int64_t index = t->step % t->per_epoch;
    if (t->watcher && t->epochs && index == 0) MEG_TRY(e, begin_epoch(t, y, stop));
    if (*stop) return MEG_OK;
    pass_over pass = {t->loader, t->data, t->plan->entry[MEG_ENTRY_TRAIN].batch,
                      t->step / t->per_epoch};
    MEG_TRY(e, take_batch(t, &pass, index, &batch));
    double lr = meg_trainer_rate(t);
    MEG_TRY(e, run_step(t, &batch, lr));
    t->step++;
    meg_late_step mine = {t->step, batch.count, lr, meg_clock() - begin, begin};
    MEG_TRY(e, take_outcome(t, y, stop)); /* of the step before */
    t->late = mine;
    return meg_comm_size(t->ctx->comm) == 1 ? take_outcome(t, y, stop) : MEG_OK;
}

/* After an error that all ranks have: no message of theirs may stay under way. */
static void forget_outcomes(meg_trainer *t)
{
    meg_error ignored = {0};
    meg_outcome o;
    t->late.number = 0;
    while (meg_engine_waiting(t->engine))
        meg_engine_outcome(t->engine, &ignored, &o);
}

meg_status meg_trainer_judges(const meg_trainer *t)
{
    MEG_CHECK(&t->ctx->error, !meg_graph_late(t->plan->source), MEG_EARG,
              "the loss of %s is outside: meg_forward and meg_backward train it, meg_predict gives "
              "its outputs",
              t->plan->source->name);
    return MEG_OK;
}

meg_status meg_train(meg_trainer *t, int64_t steps, meg_report *out)
{
    tally y = {0};
    bool stop = false;
    meg_status status = MEG_OK;
    meg_report r;
    MEG_TRY(&t->ctx->error, meg_trainer_judges(t));
    MEG_CHECK(&t->ctx->error, t->data, MEG_EARG,
              "there is no data set to train on: give meg_trainer_new one, or train on batches "
              "(meg_step)");
    MEG_CHECK(&t->ctx->error, meg_graph_trainable(t->plan->source) > 0, MEG_EARG,
              "%s has nothing to train: all its weights are frozen, or it has none",
              t->plan->source->name);
    int64_t end = steps > 0 ? t->step + steps : t->steps;
    meg_token same = {"another number of steps to train", (uint64_t)end};
    MEG_TRY(&t->ctx->error, meg_context_same(t->ctx, &same, 1));
    if (t->step > 0 && t->step >= end)
        meg_log(&t->ctx->log, MEG_WARN,
                "nothing left to train: step %" PRId64 " of %" PRId64
                " is done; give more epochs, or another checkpoint folder",
                t->step, t->steps);
    while (t->step < end && !stop && status == MEG_OK) {
        status = train_step(t, &y, &stop);
        if (status != MEG_OK || !checkpoint_due(t)) continue;
        status = take_outcome(t, &y, &stop); /* no checkpoint of what is no number */
        if (status == MEG_OK) status = meg_trainer_checkpoint(t);
    }
    if (status == MEG_OK) status = take_outcome(t, &y, &stop);
    if (status == MEG_ENAN) forget_outcomes(t);
    if (status == MEG_OK) status = report(t, &y, t->plan->seconds, &r);
    free(y.time);
    MEG_TRY(&t->ctx->error, status);
    if (out) *out = r;
    if (stop && t->step < end)
        return meg_fail(&t->ctx->error, MEG_EINTERRUPTED, "stopped after step %" PRId64, t->step);
    return MEG_OK;
}

/* ---- evaluation ---- */

static meg_status evaluate(meg_trainer *t, const pass_over *pass, meg_filled *f, tally *y)
{
    meg_error *e = &t->ctx->error;
    int64_t batch = pass->batch;
    for (int64_t i = 0; i * batch < pass->data->set.count; i++) {
        meg_batch b;
        meg_outcome o;
        double begin = meg_clock();
        if (t->counter) t->counter(t->counter_context, i * batch, pass->data->set.count);
        MEG_TRY(e, take_batch(t, pass, i, &b));
        meg_feed feed = {.scalars = {0, 0, 0, 1},
                         .seed = (uint64_t)t->ctx->options.seed,
                         .wish = asked,
                         .context = t};
        meg_status status = meg_filled_take(f, e, &b, batch, &feed);
        if (status == MEG_OK) status = meg_engine_step(t->engine, e, MEG_ENTRY_EVAL, &feed, &o);
        if (status == MEG_ENAN) return status;
        MEG_TRY(e, meg_context_end(t->ctx, status));
        o.correct /= (double)t->judged.labels;
        count_step(y, &o, b.count, meg_clock() - begin);
        if (o.wish) return meg_fail(e, MEG_EINTERRUPTED, "stopped while evaluating");
    }
    return MEG_OK;
}

/* What a rank can do wrong on its own. */
static meg_status make_ready(meg_trainer *t, meg_data *d, meg_loader **loader)
{
    meg_error *e = &t->ctx->error;
    MEG_TRY(e, meg_trainer_judges(t));
    MEG_TRY(e, meg_data_fits(d, t->plan->source));
    meg_reading r = meg_wants_of(t->plan, MEG_ENTRY_EVAL, MEG_ENTRY_EVAL);
    meg_wants_bind(&r, t->plan, &d->set);
    meg_loader_options o = {
        .batch = t->plan->entry[MEG_ENTRY_EVAL].batch, .wants = r.count, .want = r.want};
    return r.any ? meg_loader_new(e, &d->set, &o, loader) : MEG_OK;
}

meg_status meg_evaluate(meg_trainer *t, meg_data *d, meg_report *out)
{
    tally y = {0};
    meg_loader *loader = NULL;
    meg_report r;
    meg_filled f = {0};
    meg_token count = {"another number of samples to evaluate", (uint64_t)d->set.count};
    MEG_TRY(&t->ctx->error, meg_context_same(t->ctx, &count, 1));
    meg_status status = meg_context_agree(t->ctx, make_ready(t, d, &loader));
    if (status == MEG_OK) status = meg_data_same(d, loader || each_reads(t->plan));
    pass_over pass = {loader, d, t->plan->entry[MEG_ENTRY_EVAL].batch, 0};
    if (status == MEG_OK) status = evaluate(t, &pass, &f, &y);
    if (status == MEG_OK) status = report(t, &y, t->plan->entry[MEG_ENTRY_EVAL].seconds, &r);
    if (status == MEG_OK && out) *out = r;
    free(y.time);
    meg_loader_free(loader);
    meg_filled_free(&f);
    return status;
}
