/* A contest of plans: what was predicted of each and what was measured, as a table or as records.
 *
 *     predicted s  measured s  of rounds         ratio  bytes predicted    measured  difference
 *          0.0993      0.1010  0.0995..0.1043     1.02         44961792    44961792           0  auto  recompute=none
 *          0.1541      0.1602  0.1588..0.1690     1.04         49838080    49838080           0        mesh=h2
 *     order: as predicted, in all 1 pairs
 *     auto takes the quickest of them
 */
#ifndef MEG_CLI_CONTEST_H
#define MEG_CLI_CONTEST_H

#include "cli/report/measure.h"

#include <stdbool.h>

typedef struct meg_contender { /* a plan */
    const char *words;
    bool chosen;      /* by auto */
    uint64_t program; /* equal plans have the same, whatever their words */
    double predicted; /* seconds of a step; 0: there is no plan */
    int64_t
        bytes; /* predicted of the rank that `measured` is of, else of the one that needs most */
    int64_t measured;    /* bytes; 0: it did not run */
    meg_measure steps;   /* seconds of each */
    meg_measure rounds;  /* the median of each round */
    const char *trouble; /* why it did not run to the end; NULL: it did */
} meg_contender;

typedef struct meg_contest {
    meg_contender *list; /* in the order of predictions; those without a plan last */
    int count;
} meg_contest;

void meg_contest_sort(meg_contest *c);

typedef struct meg_judgement {
    int pairs,
        right; /* pairs of plans that ran, and those measured in the order that was predicted */
    int best, chosen; /* the quickest, and what auto took; -1: none ran */
    double
        slower; /* than the best is the chosen one: 0.02 is 2 %, by medians; 0: they are one plan */
    double slower_most; /* by rounds, an upper bound at 95 %; NaN: too few of them */
    int unlike;         /* plans whose bytes are not as predicted */
} meg_judgement;

meg_judgement meg_contest_judge(const meg_contest *c);

void meg_contest_print(const meg_contest *c); /* for people, to stdout, with the verdict */
void meg_contest_record(
    const meg_contest *c); /* a JSON object for each round of each plan, then for each plan */

#endif
