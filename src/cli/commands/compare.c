/* `megalith compare MODEL -np N`: runs the plans that a search finds best, each for a few steps, and sets what was
 * predicted beside what was measured. Or plans that one names.
 *
 *     round 0   plan 0, plan 1, plan 2      does not count: memory is touched, caches and clocks settle
 *     round 1   plan 0, plan 1, plan 2      so that a machine that becomes slower does so for all of them
 *     ...
 *
 * All in one job. Trainers of all plans stay open as long as there is memory for them, else each is opened for its
 * turn. A plan that cannot be made, or fails in the middle, is a row with its reason.
 */
#include "base/random.h"
#include "cli/contest.h"
#include "cli/trial.h"
#include "exec/meters/drift.h"
#include "machine/memory.h"
#include "plan/digest.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUNCHES = 4, /* of turns of the reference loop, in a look */
    LOOKS = 8,   /* before the pace is known */
    TRIES = 6    /* of a turn, until it is at that pace */
};

typedef struct settings {
    int64_t top, steps, rounds, warmup;
    char candidates[MEG_TEXT];
    bool reference, json;
} settings;

typedef struct entrant { /* a plan that takes part */
    const char *words;   /* besides those that were given */
    const char *options; /* all of them */
    bool chosen;         /* by auto */
    meg_plan *plan;
    meg_data *data;
    meg_trial_run trial;
    meg_measure rounds;
    int64_t bytes;       /* of the rank that needs most */
    const char *trouble; /* NULL: none yet */
} entrant;

typedef struct job {
    meg_session s;
    const settings *o;
    entrant *list;
    size_t room;
    int count;
    bool stay; /* trainers, from round to round */
    meg_march march;
    meg_drift *drift;    /* NULL: it is not asked for */
    int turns, repeated; /* that counted; so often was one made again */
    int uneven;          /* turns at another pace to the last */
} job;

static const char NO_WORDS[] = "(replicas alone: no more words)";

/* ---- who takes part ---- */

static void enter(job *j, const char *words, const char *options, bool chosen)
{
    j->list = meg_grow(j->list, &j->room, (size_t)j->count + 1, sizeof *j->list);
    j->list[j->count++] = (entrant){
        .words = *words ? words : NO_WORDS, .options = options, .chosen = chosen};
}

/* Words, and more of them, which count more. Nothing else is chosen. */
static const char *joined(const job *j, const char *given, const char *more)
{
    meg_pool *pool = j->s.arguments->pool;
    char word[MEG_TEXT], *text = meg_pool_text(pool, "%s", given);
    meg_excerpt value;
    meg_options_drop(text, "goal");
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;)
        meg_options_drop(text, word);
    return meg_pool_text(pool, "%s %s goal=given", text, more);
}

/* The next of words that are a plan a line. */
static const char *next_words(meg_pool *pool, const char **lines)
{
    size_t length = strcspn(*lines, "\n");
    const char *words = meg_pool_text(pool, "%.*s", (int)length, *lines);
    *lines += length + ((*lines)[length] == '\n');
    return words;
}

/* What a search finds: the first so many. One rank takes words that are not given as they are, if they fit: then others
 * are searched for. */
static meg_status enter_best(job *j, const char *given, int64_t most)
{
    meg_session *s = &j->s;
    meg_pool *pool = s->arguments->pool;
    meg_forecast f = {0}, others = {0};
    meg_status status = meg_context_prices(s->ctx);
    if (status == MEG_OK) status = meg_context_forecast_all(s->graph, NULL, given, &f);
    MEG_TRY(s->error, meg_session_said(s, status));
    if (!j->o->json && meg_session_speaks(s)) fputs(f.why, stdout);
    const char *lines = *f.best ? f.best : f.chosen; /* nothing was to be chosen, or nothing fits */
    const char *words = next_words(pool, &lines);
    enter(j, words, joined(j, given, words), true);
    bool as_given = !*f.best && meg_ranks(s->ctx) == 1 && most > 1;
    if (as_given) status = meg_context_forecast(s->graph, NULL, given, 1, true, &others);
    if (as_given && status == MEG_OK) lines = others.best;
    for (int64_t left = most - 1; left > 0 && *lines;) {
        words = next_words(pool, &lines);
        if (as_given && !*words) continue; /* those are the first */
        enter(j, words, joined(j, given, words), false);
        left--;
    }
    meg_forecast_free(&others);
    meg_forecast_free(&f);
    return meg_session_said(s, status);
}

/* "stages=2 micro=4; mesh=h2; auto" */
static meg_status enter_candidates(job *j, const char *given)
{
    meg_session *s = &j->s;
    const char *at = j->o->candidates;
    while (*at) {
        at += strspn(at, " ;");
        size_t length = strcspn(at, ";"), shown = length;
        while (shown && at[shown - 1] == ' ')
            shown--;
        const char *words = meg_pool_text(s->arguments->pool, "%.*s", (int)shown, at);
        if (strcmp(words, "auto") == 0) MEG_TRY(s->error, enter_best(j, given, 1));
        else if (length) enter(j, words, joined(j, given, words), false);
        at += length;
    }
    return MEG_OK;
}

static meg_status enter_files(job *j)
{
    meg_session *s = &j->s;
    const meg_arguments *a = s->arguments;
    char word[MEG_TEXT];
    meg_excerpt value;
    for (const char *at = a->text[MEG_TO_PLAN_FILE]; meg_options_next(&at, word, &value) > 0;) {
        const char *options, *path = meg_pool_text(a->pool, "%.*s", value.length, value.at);
        meg_wording w = {path, meg_trial_words(a, path), meg_ranks(s->ctx)};
        MEG_TRY(s->error, meg_session_words(s, &w, &options));
        enter(j, path, options, false);
    }
    return MEG_OK;
}

static meg_status enter_all(job *j)
{
    meg_session *s = &j->s;
    const meg_arguments *a = s->arguments;
    const char *given, *all = "";
    meg_wording w = {NULL, meg_trial_words(a, NULL), meg_ranks(s->ctx)};
    MEG_TRY(s->error, meg_session_words(s, &w, &given));
    MEG_TRY(s->error, meg_session_agree(s, enter_files(j)));
    if (*j->o->candidates) MEG_TRY(s->error, enter_candidates(j, given));
    if (j->count == 0) MEG_TRY(s->error, enter_best(j, given, j->o->top));
    for (int i = 0; i < j->count; i++)
        all = meg_pool_text(a->pool, "%s%s\n", all, j->list[i].options);
    const meg_token same = {"other plans to compare", meg_hash(all)};
    return meg_session_said(s, meg_context_same(s->ctx, &same, 1));
}

/* ---- getting ready ---- */

static void fails(job *j, entrant *x)
{
    x->trouble = meg_pool_text(j->s.arguments->pool, "%s", meg_message(j->s.ctx));
}

static uint64_t program_of(const meg_plan *p)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    meg_events v;
    meg_events_of(p, MEG_ENTRY_TRAIN, &v);
    uint64_t h = meg_digest_order(&v, e->teams, e->team), seconds;
    meg_events_clear(&v);
    memcpy(&seconds, &p->seconds, sizeof seconds);
    h = meg_hash_word(meg_hash_word(h, seconds), (uint64_t)p->arena);
    for (int i = 0; i < e->stations; i++)
        h = meg_hash_word(h, (uint64_t)e->station[i].instrs);
    return h;
}

/* The most that a rank needs, and what those of this machine need together. */
static meg_status count_bytes(job *j, entrant *x, int64_t *here)
{
    meg_session *s = &j->s;
    int ranks = meg_ranks(s->ctx), me = meg_rank(s->ctx);
    const int *node = meg_comm_node(s->ctx->comm);
    int64_t *all = meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof *all);
    MEG_TRY(s->error, meg_comm_gather(s->ctx->comm, s->error, &x->plan->arena, sizeof *all, all));
    for (int r = 0; r < ranks; r++) {
        if (node[r] == node[me]) *here += all[r];
        if (all[r] > x->bytes) x->bytes = all[r];
    }
    return MEG_OK;
}

/* A plan that cannot be made is a row, too. */
static meg_status make_plans(job *j)
{
    meg_session *s = &j->s;
    int64_t here = 0;
    for (int i = 0; i < j->count; i++) {
        entrant *x = &j->list[i];
        if (meg_plan_new(s->graph, NULL, x->options, &x->plan) != MEG_OK) {
            fails(j, x);
            continue;
        }
        MEG_TRY(s->error, count_bytes(j, x, &here));
        MEG_TRY(s->error, meg_trial_data(s, x->plan, &x->data));
    }
    bool cramped;
    MEG_TRY(s->error, meg_session_any(s, here > meg_memory_look("").free / 2, &cramped));
    j->stay = !cramped;
    return MEG_OK;
}

/* ---- measuring ---- */

static void leave(entrant *x)
{
    meg_trainer_free(x->trial.trainer);
    x->trial.trainer = NULL;
}

static meg_status run_turn(job *j, entrant *x, bool counts)
{
    meg_trial_run *t = &x->trial;
    meg_status status = MEG_OK;
    if (!t->trainer) status = meg_trainer_new(x->plan, x->data, meg_trial_rate, &t->trainer);
    if (status == MEG_OK) status = meg_trial_steps(t, &j->march, j->o->warmup, false);
    size_t first = t->steps.count;
    if (status == MEG_OK && counts) status = meg_trial_steps(t, &j->march, j->o->steps, true);
    meg_measure mine = {.at = t->steps.at + first, .count = t->steps.count - first};
    if (status == MEG_OK && counts) meg_measure_add(&x->rounds, meg_measure_median(&mine));
    return status;
}

static meg_status look_at_machine(job *j, double *work)
{
    meg_drift_time now;
    MEG_TRY(j->s.error, meg_drift_look(j->drift, j->s.error, BUNCHES, &now));
    *work = now.work;
    return MEG_OK;
}

/* All have to be measured at one pace of the machine: a turn that was at another is made again. */
static meg_status run_even_turn(job *j, entrant *x, bool counts)
{
    double before = 0, behind = 0;
    if (!j->drift || !counts) return run_turn(j, x, counts);
    for (int i = 0; i < TRIES; i++) {
        size_t steps = x->trial.steps.count, rounds = x->rounds.count;
        MEG_TRY(j->s.error, look_at_machine(j, &before));
        MEG_TRY(j->s.error, run_turn(j, x, counts));
        MEG_TRY(j->s.error, look_at_machine(j, &behind));
        double calm = meg_drift_calm(j->drift);
        bool even = meg_drift_same(calm, before) && meg_drift_same(calm, behind);
        j->uneven += !even && i + 1 == TRIES;
        if (even || i + 1 == TRIES) break;
        x->trial.steps.count = steps;
        x->rounds.count = rounds;
        j->repeated++;
        j->march.total += j->o->warmup + j->o->steps;
    }
    j->turns++;
    return MEG_OK;
}

static meg_status measure(job *j)
{
    double work;
    if (j->o->reference) {
        meg_context *ctx = j->s.ctx;
        meg_status status = meg_drift_new(ctx->device, ctx->comm, j->s.error, &j->drift);
        MEG_TRY(j->s.error, meg_session_agree(&j->s, status));
        for (int i = 0; i < LOOKS; i++)
            MEG_TRY(j->s.error, look_at_machine(j, &work));
    }
    j->march.total = j->count * (j->o->rounds * (j->o->warmup + j->o->steps) + j->o->warmup);
    meg_bar_begin(&j->march.bar, "compare: step", meg_session_speaks(&j->s));
    for (int64_t round = 0; round <= j->o->rounds; round++)
        for (int i = 0; i < j->count; i++) {
            entrant *x = &j->list[i];
            if (x->trouble) continue;
            if (run_even_turn(j, x, round > 0) != MEG_OK) fails(j, x);
            if (x->trouble || !j->stay) leave(x);
        }
    return MEG_OK;
}

/* ---- the end ---- */

static void tell(job *j, const meg_contest *c)
{
    const meg_session *s = &j->s;
    const settings *o = j->o;
    if (!o->json) {
        printf("%s on %d rank%s: %d plan%s in turn, %d rounds of %d step%s%s\n", s->graph->name,
               meg_ranks(s->ctx), meg_ranks(s->ctx) == 1 ? "" : "s", c->count,
               c->count == 1 ? "" : "s", (int)o->rounds, (int)o->steps, o->steps == 1 ? "" : "s",
               j->stay ? "" : "; each is opened anew for its turn, for want of memory");
        meg_contest_print(c);
        if (j->drift)
            printf("pace: %d turns, made again %d times, since the machine was at another pace; %d "
                   "were at another to the last, and count\n",
                   j->turns, j->repeated, j->uneven);
        return;
    }
    meg_judgement v = meg_contest_judge(c);
    meg_record r = {0};
    meg_contest_record(c);
    meg_record_true(&r, "final");
    meg_record_text(&r, "model", s->graph->name);
    meg_record_text(&r, "device", s->ctx->options.device);
    meg_record_int(&r, "threads", meg_device_threads(s->ctx->device));
    meg_record_int(&r, "ranks", meg_ranks(s->ctx));
    meg_record_int(&r, "plans", c->count);
    meg_record_int(&r, "rounds", o->rounds);
    if (j->drift) {
        meg_record_int(&r, "turns", j->turns);
        meg_record_int(&r, "turns_repeated", j->repeated);
        meg_record_int(&r, "turns_uneven", j->uneven);
    }
    meg_record_int(&r, "pairs", v.pairs);
    meg_record_int(&r, "pairs_as_predicted", v.right);
    meg_record_int(&r, "best_plan", v.best);
    meg_record_int(&r, "auto_plan", v.chosen);
    meg_record_real(&r, "auto_slower", v.slower);
    meg_record_real(&r, "auto_slower_most", v.slower_most);
    meg_record_end(&r);
}

/* Bytes that are not as predicted are a defect, and no plan that ran is no comparison. */
static meg_status conclude(job *j)
{
    meg_session *s = &j->s;
    meg_contest c = {.count = j->count};
    c.list = meg_pool_alloc(s->arguments->pool, ((size_t)j->count + 1) * sizeof *c.list);
    for (int i = 0; i < j->count; i++) {
        const entrant *x = &j->list[i];
        /* Bytes of numbers that are no longer finite look like memory that nobody touched. */
        bool seen = !x->trouble && x->trial.last.step > 0;
        c.list[i] = (meg_contender){.words = x->words,
                                    .chosen = x->chosen,
                                    .program = x->plan ? program_of(x->plan) : 0,
                                    .predicted = x->plan ? x->plan->seconds : 0,
                                    .bytes = seen ? x->trial.last.predicted_peak_bytes : x->bytes,
                                    .measured = seen ? x->trial.last.measured_peak_bytes : 0,
                                    .steps = x->trial.steps,
                                    .rounds = x->rounds,
                                    .trouble = x->trouble};
    }
    meg_contest_sort(&c);
    meg_judgement v = meg_contest_judge(&c);
    if (meg_session_speaks(s)) tell(j, &c);
    MEG_CHECK(s->error, v.best >= 0, MEG_EARG, "none of the plans ran to its end; the first: %s",
              c.list[0].trouble);
    MEG_CHECK(s->error, v.unlike == 0, MEG_EDATA,
              "%d plan%s needed other bytes than predicted, which is a mistake of Megalith",
              v.unlike, v.unlike == 1 ? "" : "s");
    return MEG_OK;
}

static meg_status compare(job *j)
{
    meg_session *s = &j->s;
    MEG_TRY(s->error, meg_session_graph(s));
    MEG_TRY(s->error, enter_all(j));
    MEG_TRY(s->error, make_plans(j));
    MEG_TRY(s->error, measure(j));
    return conclude(j);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    job j = {.o = a->settings};
    meg_status status = meg_session_open(&j.s, a, e);
    if (status == MEG_OK) status = compare(&j);
    for (int i = 0; i < j.count; i++) {
        entrant *x = &j.list[i];
        leave(x);
        meg_plan_free(x->plan);
        meg_data_free(x->data);
        meg_measure_free(&x->trial.steps);
        meg_measure_free(&x->rounds);
    }
    free(j.list);
    meg_drift_free(j.drift);
    meg_session_close(&j.s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"top", MEG_PARAM_INT, AT(top), "4",
     "plans of the search: what it chooses, the best of other kinds, then the next best", NULL, 1,
     MEG_FORECAST_BEST},
    {"candidates", MEG_PARAM_TEXT, AT(candidates), "",
     "these instead, between semicolons: \"auto; stages=2 micro=4; mesh=h2\"", NULL, 0, 0},
    {"rounds", MEG_PARAM_INT, AT(rounds), "5", "turns of each plan that count; one before does not",
     NULL, 3, 1e6},
    {"steps", MEG_PARAM_INT, AT(steps), "3", "steps of a turn", NULL, 1, 1e6},
    {"warmup", MEG_PARAM_INT, AT(warmup), "1", "steps before those, which do not count", NULL, 1,
     1e6},
    {"reference", MEG_PARAM_BOOL, AT(reference), "no",
     "a reference loop around each turn: turns at another pace of the machine are made again", NULL,
     0, 0},
    {"json", MEG_PARAM_BOOL, AT(json), "no", "every figure as JSON, one object a line", NULL, 0, 0},
    {0},
};

static bool searches(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return !o->candidates[0] && !meg_arguments_has(state, MEG_TO_PLAN_FILE, "plan");
}

static const meg_rule RULES[] = {
    {"top", NULL, searches, MEG_WARNS,
     "has no effect: --candidates and --plan say which plans are compared"},
    {0},
};

const meg_command meg_command_compare = {
    .name = "compare",
    .usage =
        "MODEL -np N [--top K | --candidates \"WORDS; WORDS\" | --plan FILE ...] [--word value "
        "...]",
    .doc = "runs the best plans for a few steps: predicted against measured",
    .more = "Plans take turns, on synthetic data. --plan may be given several times.\n"
            "Words of a candidate count more than those of the command line; what neither has is "
            "the default.\n",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_MODEL |
             MEG_TAKES_RANKS,
    .priced = true,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
