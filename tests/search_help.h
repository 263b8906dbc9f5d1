/* Questions for the search, and what it answers: shared by its tests. Prices are the built-in ones, machines are
 * described: the answer does not depend on the hour.
 */
#ifndef MEG_TESTS_SEARCH_HELP_H
#define MEG_TESTS_SEARCH_HELP_H

#include "device_help.h"
#include "plan/search/search.h"
#include "zoo/zoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char NODE[] = "ranks=8 cores=8 inside=2us,4GB/s,cpu:1";

typedef struct question {
    const char *model, *model_words, *words, *machine;
    int ranks;
    int64_t memory;
    meg_goal goal;
} question;

typedef struct answer {
    meg_graph *graph;
    meg_machine machine;
    meg_search_ask ask;
    meg_search found;
    meg_status status;
    meg_error error;
} answer;

/* With so much work, 0: any. */
static inline answer *asked_for(const question *q, double work)
{
    answer *a = calloc(1, sizeof *a);
    if (meg_zoo_build(&a->error, q->model, q->model_words, &a->graph) != MEG_OK ||
        meg_machine_read(&a->error, "test", q->machine, &a->machine) != MEG_OK)
        fail_msg("%s", a->error.message);
    a->ask = (meg_search_ask){.graph = a->graph,
                              .profile = &meg_profile_plain,
                              .machine = &a->machine,
                              .options = q->words,
                              .ranks = q->ranks,
                              .memory = q->memory,
                              .goal = q->goal,
                              .work = work};
    a->status = meg_search_run(&a->ask, &a->error, &a->found);
    return a;
}

static inline answer *asked(const question *q)
{
    return asked_for(q, 0);
}

static inline void drop(answer *a)
{
    meg_search_free(&a->found);
    meg_graph_destroy(a->graph);
    free(a);
}

static inline const meg_candidate *best(const answer *a)
{
    if (a->status != MEG_OK) fail_msg("%s: %s", a->ask.options, a->error.message);
    assert_true(a->found.fits);
    assert_int_equal(a->found.list[0].verdict, MEG_BEST);
    return &a->found.list[0];
}

typedef struct figures { /* of a plan */
    double seconds;      /* INFINITY: it is none, or too large */
    int64_t bytes;
} figures;

/* Exactly: every class of ranks. limit: bytes above which nobody asks for seconds. */
static inline figures figures_of(const answer *a, const char *words, int64_t limit)
{
    meg_world world = {0, a->ask.ranks};
    char text[1280];
    meg_error e = {0};
    meg_whole whole;
    meg_replay r;
    figures f = {INFINITY, INT64_MAX};
    snprintf(text, sizeof text, "%s goal=given %s", a->ask.options, words);
    meg_plan_input in = {a->ask.profile, &world, text, a->ask.samples, NULL};
    if (meg_whole_make(a->graph, &e, &in, &whole) != MEG_OK) return f;
    f.bytes = meg_whole_bytes(&whole);
    if (f.bytes <= limit && meg_whole_replay(&whole, &e, a->ask.machine, &r) == MEG_OK) {
        f.seconds = r.seconds;
        free(r.times);
    }
    meg_whole_free(&whole);
    return f;
}

/* INFINITY: it is no plan, or needs more than there is. */
static inline double seconds_of(const answer *a, const char *words)
{
    return figures_of(a, words, a->ask.memory ? a->ask.memory : INT64_MAX).seconds;
}

#endif
