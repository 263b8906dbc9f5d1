/* The critical path in words: "critical path: 62 % kernels of rank 1 (stage 1), 21 % messages rank 0 -> 1, ..". */
#ifndef MEG_CLI_PAGE_PATH_H
#define MEG_CLI_PAGE_PATH_H

#include "train/outlook/foresight.h"

/* How many ranks an actor stands for. */
int meg_actor_ranks(const meg_foresight *f, int actor);

typedef struct
    meg_path_group { /* parts that are told as one: those between the same stages, or the same ranks */
    const char *text;
    meg_critical_what what;
    int actors, pieces; /* between how many pairs of actors */
    double seconds;
} meg_path_group;

/* The largest first. stages: of each actor, as a list; NULL: there is one. The texts are the pool's. */
int meg_path_groups(const meg_foresight *f, meg_pool *pool, const char *const stages[],
                    meg_path_group **out);
const char *meg_path_line(const meg_foresight *f, meg_pool *pool, const char *const stages[]);

double meg_path_seconds(const meg_foresight *f, meg_critical_what what); /* all of such pieces */

#endif
