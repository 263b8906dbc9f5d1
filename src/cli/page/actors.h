/* The actors of a foresight that are shown: all, or of many those that tell most; and the sheets of each. */
#ifndef MEG_CLI_PAGE_ACTORS_H
#define MEG_CLI_PAGE_ACTORS_H

#include "cli/page/sheet.h"
#include "train/outlook/foresight.h"

/* Writes at most `most` numbers of actors, by their ranks; returns how many. If not all can be shown: the one that
 * needs most memory, that of rank 0, those of the critical path, then some from everywhere. */
int meg_actors_choose(const meg_foresight *f, int most, int actor[]);

typedef struct meg_actors_tour { /* plan and sheet are gone after each visit */
    const meg_graph *graph;
    int count;
    const int *actor;
    void (*visit)(void *context, int actor, const meg_plan *p, const meg_sheet *s);
    void *context;
} meg_actors_tour;

meg_status meg_actors_visit(const meg_foresight *f, meg_error *e, const meg_actors_tour *t);

#endif
