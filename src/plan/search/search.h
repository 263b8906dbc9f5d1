/* The search for a plan: which words that were not given make a step quickest on a machine, within the memory
 * of its ranks. Pure: the same question, the same answer.
 *
 *     shapes      replicas x stages x mesh x micro-batches x schedule that use all ranks, each with what its
 *                 seconds are at best (shapes.c)
 *     estimate    their seconds and bytes by closed forms, with words that save memory where they are needed
 *                 (estimate.c)
 *     look        in the order of the estimates, exactly: plans of all ranks, their bytes, a replay; where
 *                 they need too much memory, again with words that save some. Those whose bound is above the
 *                 best that was found are left out. Of many ranks one stands for those with the same stages (whole.h)
 *     refine      them, the best first, word by word: wide, channels, allreduce, bucket, recompute, balance, zero
 *     choose      of those within 3 % of the best, the one with the fewest words; of many ranks, of those that
 *                 every rank can hold (confirm.c)
 *
 * A word that was given is never changed, nor are batch, norm, optimizer and its words. What was rejected keeps its
 * reason.
 */
#ifndef MEG_PLAN_SEARCH_SEARCH_H
#define MEG_PLAN_SEARCH_SEARCH_H

#include "plan/whole.h"

typedef struct meg_search_ask {
    const meg_graph *graph;
    const meg_profile *profile;
    const meg_machine *machine;
    const char *options; /* words that were given */
    int64_t samples;
    int ranks;
    int64_t memory; /* bytes that a rank may have; 0: no limit */
    const int64_t
        *limit; /* (ranks) where they differ, of which `memory` is the largest; NULL: they do not */
    meg_goal goal;
    double work; /* instructions that may be lowered for it, about; 0: look at all */
} meg_search_ask;

/* What every rank has: a budget is one number for all. */
int64_t meg_search_limit(const meg_search_ask *ask);

/* What takes seconds, not minutes, on any machine: so many instructions. */
double meg_search_work(int ranks);

typedef enum meg_standing {
    MEG_BEST,
    MEG_SLOWER,    /* than the best, by replay */
    MEG_BEYOND,    /* its bound is above the best */
    MEG_TOO_LARGE, /* for the memory of a rank */
    MEG_ILLEGAL,   /* there is no such plan, says `why` */
    MEG_UNSEEN     /* the work that was allowed was done before */
} meg_standing;

typedef struct meg_candidate {
    const char *words;      /* besides those that were given */
    int count;              /* of them */
    double bound;           /* seconds that it takes at best, about */
    double seconds;         /* by replay; 0: not looked at */
    meg_replay_times times; /* of the rank that is busiest */
    int64_t bytes;          /* of the rank that needs most; 0: not looked at */
    int64_t missing;        /* to the rank that lacks most; at most 0: none */
    int tightest;           /* that rank, where limits differ */
    meg_standing verdict;
    const char *why; /* "": the figures say it */
} meg_candidate;

typedef struct meg_search {
    meg_pool *pool;
    meg_goal goal;
    meg_candidate *list;  /* by verdict, then by the goal (seconds or bound; bytes) */
    int count, looked;    /* looked: those of the list that were replayed */
    double work;          /* that was done */
    double one;           /* seconds of one rank alone, as if it had the memory */
    double bound;         /* of a step, were the kernels of one rank cut evenly and nothing else */
    int fewer;            /* ranks that would be quicker than all of them; 0: none that was tried */
    double fewer_seconds; /* of a step on them, with the given words alone */
    bool fits; /* the first of the list is a plan; else it is the one that is nearest to fitting */
} meg_search;

/* An error only where not even the given words make a plan. Free it in any case. */
meg_status meg_search_run(const meg_search_ask *ask, meg_error *e, meg_search *out);
void meg_search_free(meg_search *s);

/* The choice, the best of each other kind of plan and why it is not chosen: a few lines. */
void meg_search_tell(const meg_search *s, const meg_search_ask *ask, FILE *out);

/* What kind of plan words make: equal numbers, equal kinds. */
int meg_search_kind(const char *words);

/* Every alternative, with its reason. */
void meg_search_table(const meg_search *s, const meg_search_ask *ask, FILE *out);

/* Why one of them is not chosen, by the goal; of the ask only the memory counts. */
void meg_search_reason(const meg_search *s, const meg_candidate *c, const meg_search_ask *ask,
                       FILE *out);

/* Are there words to be found? None where goal=given. */
bool meg_search_wanted(const char *options, int ranks);

/* ---- private ---- */

typedef struct meg_shape {
    const char *words;
    int count;
    double bound;
    bool pixels, channels; /* what its mesh cuts */
    int stages, copies;    /* ranks that share a weight */
    int size;              /* ranks of its mesh; 0: not known */
    int pipe, chunks, replicas, directions;
    const char *schedule; /* given or not; "": one stage has none */
    int64_t micro;
    double samples;      /* of a micro-batch, on a rank that has its layers whole */
    bool known;          /* the mesh is; one that was given only the plan can read */
    int parts[MEG_AXES]; /* of a mesh that is known */
    double longer;       /* than the work in it is the timetable */
    const int *frames;   /* (directions, stages) micro-batches in flight; NULL: 1 */
    double estimate;     /* seconds, roughly (estimate.h) */
    int64_t about;       /* bytes, roughly; 0: not known */
    const char *saver;   /* words that it is taken to need to fit, or to come nearest; "": none */
} meg_shape;

/* Of a network whose step takes `one` seconds on one rank, by ascending bounds. *out is to be freed, its words are
 * the pool's. given: the options of the words that were given. */
int meg_search_shapes(const meg_search_ask *ask, meg_pool *pool, const meg_plan_options *given,
                      double one, meg_shape **out);

bool meg_search_free_word(const meg_search_ask *ask, const char *word); /* not given */

#endif
