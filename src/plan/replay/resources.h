/* What activities of a replay share: the cores of each actor; of each node its ways out and in, its memory, its
 * cores, which may be those of all. Where more is wanted than there is, all that want it are slowed down alike.
 */
#ifndef MEG_PLAN_REPLAY_RESOURCES_H
#define MEG_PLAN_REPLAY_RESOURCES_H

#include "machine/description.h"

enum {
    MEG_WANTS = 10 /* of an activity, at most */
};

typedef enum meg_resource {
    MEG_OUT,
    MEG_IN,
    MEG_BOTH, /* ways together */
    MEG_INSIDE,
    MEG_CORES,
    MEG_RESOURCE_KINDS
} meg_resource;

typedef struct meg_wants { /* of an activity, while it goes on at full speed */
    int count;
    struct {
        int resource;
        double amount;
    } at[MEG_WANTS];
} meg_wants;

typedef struct meg_resources {
    int actors, count;
    bool pooled; /* all nodes have the cores of the first */
    double *load, *capacity; /* capacity 0: as much as is wanted */
} meg_resources;

meg_resources meg_resources_new(const meg_machine *m, int ranks, int actors);
void meg_resources_free(meg_resources *r);

/* Cores of a rank; where ranks outnumber cores they have them by turns. */
double meg_cores_of_rank(const meg_machine *m);

/* The cores of an actor are the resource of its number. */
int meg_resource_of(const meg_resources *r, int node, meg_resource kind);

void meg_wants_add(const meg_resources *r, meg_wants *w, int resource, double amount);

/* First all that goes on is loaded, then each has its speed: 1, or less. Then all is unloaded: there may be thousands of
 * nodes, and few of them have to do with what goes on. */
void meg_resources_unload(meg_resources *r, const meg_wants *w);
void meg_resources_load(meg_resources *r, const meg_wants *w);
double meg_resources_speed(const meg_resources *r, const meg_wants *w);

#endif
