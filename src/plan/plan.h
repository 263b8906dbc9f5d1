/* Plans: from a graph and options to programs, purely. Same input, same bytes out.
 *
 *     graph --fuse--> graph --lower--> entries (train, its tail, eval) --place--> offsets, peak
 *
 * The rooms of this folder, each of which sees those before it:
 *
 *     layout      which rank makes which part of a value; how parts travel
 *     schedule    which stage works on which micro-batch when
 *     program     what a plan is: entries, instructions, slots; offsets, checks, traffic, deadlocks
 *     partition   stages, segments, and which ranks they sit on
 *     distribute  graph rewrites; each rank's part of every value, its halo
 *     lower       from all that to instructions
 */
#ifndef MEG_PLAN_PLAN_H
#define MEG_PLAN_PLAN_H

#include "base/log.h"
#include "plan/program/plan.h"

/* The ref devices' formats, prices of the built-in book: for tests. */
extern const meg_profile meg_profile_plain;

extern const meg_param meg_plan_params[];

/* Sets p's options, its optimizer and the optimizer's settings (words.c). */
meg_status meg_plan_parse(meg_plan *p, meg_error *e, const char *text);

/* The words of the plan; those of its optimizer are not looked at. */
meg_status meg_plan_options_read(meg_pool *pool, meg_error *e, const char *text,
                                 meg_plan_options *out);

/* The last batch of an epoch over `samples` may be a partial one: it gets an entry of its own
 * (0: unknown, no tail). Evaluation needs none: missing samples have labels that do not count. */
meg_status meg_plan_make(const meg_graph *g, meg_error *e, const meg_profile *profile,
                         const char *options, int64_t samples, meg_plan **out);
/* The part of a rank of many. Same words, same plan: ranks need not talk about it. */
meg_status meg_plan_make_for(const meg_graph *g, meg_error *e, const meg_profile *profile,
                             const meg_world *world, const char *options, int64_t samples,
                             meg_plan **out);
meg_status meg_plan_from(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                         meg_plan **out);
/* All that is common to the ranks: graphs, schedules, layouts. Nothing is lowered before the plan is turned to a
 * rank. step_only: without evaluation and tail, for those who ask for seconds. */
meg_status meg_plan_begin(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          bool step_only, meg_plan **out);
/* Makes the plan that of another rank of the same job: graphs, schedules and layouts stay. After an error
 * it is good for nothing but to be destroyed. */
meg_status meg_plan_turn(meg_plan *p, meg_error *e, int rank);
/* Refuses, or warns about, words that have no effect on this plan (plan/rules.c). */
meg_status meg_plan_judge(const meg_plan *p, meg_error *e, const meg_logger *log,
                          const char *options);
void meg_plan_destroy(meg_plan *p);
bool meg_graph_normalises(const meg_graph *g); /* over samples: norm= means something */
void meg_plan_summary(const meg_plan *p, FILE *out);

#endif
