/* Looking at candidates of a search, one by one (private to plan/search). */
#ifndef MEG_PLAN_SEARCH_LOOK_H
#define MEG_PLAN_SEARCH_LOOK_H

#include "plan/search/estimate.h"
#include "plan/search/search.h"

enum {
    MEG_SEARCH_FEW = 16,  /* ranks; of more, estimates say which plans are looked at */
    MEG_SEARCH_KINDS = 8, /* 1: cuts channels, 2: runs blocks again, 4: cuts weights over ranks */
};

static const double MEG_SEARCH_ROUGH = 1.15; /* so good are estimates of seconds */

typedef struct meg_seeker {
    const meg_search_ask *ask;
    meg_search *out;
    meg_error error; /* of the last plan that could not be made */
    size_t room;
    int best; /* candidate; -1: none yet */
    meg_estimator *estimator;
    double off[MEG_SEARCH_KINDS]; /* how much more memory plans of a kind need than was estimated */
    bool last;                    /* what does not fit is looked at in full: it is the answer */
} meg_seeker;

/* The given words with more. `budget`: those that fill the memory by themselves are told how much there is. */
const char *meg_look_join(const meg_seeker *x, const char *words, bool budget);

/* Words, and more of them, which take the place of those that are there. */
const char *meg_look_both(const meg_seeker *x, const char *words, const char *more);

int meg_look_count(const char *words);

/* Does a shape have the mesh, the stages, ... that words are about? Are all of them free? */
bool meg_look_applies(const meg_shape *s, const char *more);
bool meg_look_free(const meg_seeker *x, const char *words);

/* Exactly: all ranks are planned and replayed; of many, one for those with the same stages. */
void meg_look(meg_seeker *x, meg_candidate *c);

/* The plans of all ranks, or, of many, of those that stand for them. */
meg_status meg_look_plan(meg_seeker *x, const char *words, bool all, meg_whole *out);

/* What its ranks need, and whether that fits. */
bool meg_look_judge(const meg_seeker *x, const meg_whole *whole, meg_candidate *c);

int meg_look_add(meg_seeker *x, const meg_candidate *c);

/* Looks at words and adds them; those that were tried are not tried again. Their candidate. */
int meg_look_try(meg_seeker *x, const meg_shape *s, const char *words);

/* By the goal; what is not there is worst. */
double meg_look_worth(const meg_seeker *x, const meg_candidate *c);

/* Is the work done that this part of the search may take? Without any plan it goes on for a while. */
bool meg_look_enough(const meg_seeker *x, double share);

/* Not even its bound is as quick as the best; of many ranks, not even its estimate. */
bool meg_look_beyond(const meg_seeker *x, const meg_shape *s);

/* Are all ranks of a choice as well off as those that were looked at? If not, it is none any more (confirm.c). */
bool meg_look_confirm(meg_seeker *x, meg_candidate *c);

/* Not chosen, but said: what norm= would give, whether fewer ranks would be quicker (others.c). */
void meg_others_norm(meg_seeker *x, const meg_plan_options *given);
void meg_others_fewer(meg_seeker *x);

/* Better words for the best shapes (refine.c). as: (count) the candidate that each became; -1: none. */
void meg_refine_all(meg_seeker *x, const meg_shape *shape, int count, const int *as);

#endif
