/* What is known of a plan before it runs: which words complete those that were given, how long a step of all
 * ranks takes, and why. Machines are described by machine=, a text or the name of a file; without it this one.
 */
#ifndef MEG_TRAIN_FORECAST_H
#define MEG_TRAIN_FORECAST_H

#include "machine/description.h"
#include "plan/search/search.h"
#include "train/context.h"
#include "train/outlook/foresight.h"

enum {
    MEG_FORECAST_BEST = 16
};

typedef struct meg_forecast {
    char *options;  /* the words, complete */
    int chosen_for; /* meg_goal of a search; MEG_GOAL_GIVEN: they are as they were given */
    char *chosen;   /* those that the search found; "": none is needed */
    char *
        best; /* a line each: what a search found, the best of every other kind of plan, then those that
                       are next; at most MEG_FORECAST_BEST */
    double seconds; /* of a step */
    char *why;      /* lines for people; "": nothing was chosen */
    char *nearest;  /* for the message of a plan that does not fit; "": it is as it was given */
    bool fits;      /* into the memory of ranks; else the words are the nearest plan's */
} meg_forecast;

/* The machine on which so many ranks would run. */
meg_status meg_context_machine(const meg_context *ctx, meg_error *e, int ranks, meg_machine *out);

/* Not collective; before anything is planned. From now on plans are for so many ranks that are not there (all those of the job stay
 * as they are), and the device has the threads of one of them, unless threads= was given: each thread has scratch of its own.
 *
 *     here        as -np would start them: the cores of this process are shared out, and where somebody has measured with as
 *                 many ranks, prices and links are theirs. Only memory is not shared: each may have a whole machine's.
 *     described   the cores of a rank there, unless it computes with something else than this machine does.
 */
meg_status meg_context_imagine(meg_context *ctx, int ranks);

/* Do ranks of this machine compute as this device does? Those that were described with rates of their own, or with
 * another device, do not. */
bool meg_context_computes(const meg_context *ctx, const meg_machine *m);

/* Are there rates in the description, so that no book of prices is needed? */
bool meg_context_rated(const meg_context *ctx);

/* Are words tried as they are before others are looked for? Those of one rank: what it can choose saves memory and
 * costs time, so it is left alone where it fits, unless the least memory is asked for. */
bool meg_forecast_tries(const char *options, int ranks);

/* Not collective. table: every alternative is told. */
meg_status meg_context_forecast(const meg_graph *g, const meg_data *d, const char *options,
                                int ranks, bool table, meg_forecast *out);

/* Not collective. Keeps in the context what a forecast of these words, as they are, knows. */
meg_status meg_context_foresee(const meg_graph *g, const meg_data *d, const char *options,
                               int ranks);

/* Collective: the first rank's, for all ranks of the context. */
meg_status meg_context_forecast_all(const meg_graph *g, const meg_data *d, const char *options,
                                    meg_forecast *out);

/* Adds to the context's message that what does not fit is the nearest of many plans. */
void meg_forecast_excuse(meg_context *ctx, const meg_forecast *f);

/* What a plan that was made of it says of itself. */
void meg_plan_foretell(meg_plan *p, const meg_forecast *f);

void meg_forecast_free(meg_forecast *f);

/* Collective. The first rank's text for all, to be freed; NULL there counts as "". */
meg_status meg_context_share(const meg_context *ctx, meg_error *e, char **text);

#endif
