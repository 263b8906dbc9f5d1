/* Plan files: a plan as a short text that a person reads and edits.
 *
 *     megalith plan 1                      the first line, with the version of the format
 *     # comments, from a # at the start of a word to the end of the line
 *     graph=resnet50                       what it was made for: the name is for people,
 *     fingerprint=9f3c52a1b0d7e846         the fingerprint (graph/fingerprint.h) decides
 *     ranks=4                              of the job; without this line: any number
 *     chosen_for=time                      the goal of the search that found some of the words
 *     batch=64 micro=4                     words of the plan and of its optimizer
 *     optimizer=adam beta1=0.9
 *
 * It is written in three sections, under comments: words that a search found, words that were given, and all others
 * with the values that they have by default, since a later version may have other defaults.
 *
 * Reading is pure: it takes bytes, not files, believes nothing, and names the line of what is wrong.
 */
#ifndef MEG_PLAN_TEXT_H
#define MEG_PLAN_TEXT_H

#include "plan/plan.h"

enum {
    MEG_PLAN_TEXT_MAX = 1 << 20 /* bytes: beyond any plan that a person would edit */
};

typedef struct meg_plan_text {
    meg_pool *pool;
    const char *what;  /* for messages: the file's name */
    const char *graph; /* "": not said */
    uint64_t fingerprint;
    bool has_fingerprint;
    int64_t ranks;       /* 0: not said */
    int chosen_for;      /* meg_goal; MEG_GOAL_GIVEN: nothing was chosen, or nobody says so */
    const char *options; /* all words of plan and optimizer, for meg_plan_make */
} meg_plan_text;

/* `what` names the file in messages. */
meg_status meg_plan_text_read(meg_error *e, const char *what, const char *text, size_t size,
                              meg_plan_text **out);
void meg_plan_text_free(meg_plan_text *t);

/* Was it made for this graph, and for so many ranks? */
meg_status meg_plan_text_fits(const meg_plan_text *t, meg_error *e, const meg_graph *g, int ranks);

/* The file's words and those that were given besides, as one option string (of t's pool). A word
 * may be given again with the value that the file has, but not with another. */
meg_status meg_plan_text_join(const meg_plan_text *t, meg_error *e, const char *given,
                              const char **out);

void meg_plan_text_write(const meg_plan *p, FILE *out);

#endif
