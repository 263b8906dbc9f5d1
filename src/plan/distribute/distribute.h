/* Distribution: the graph as ranks share it, and each rank's part of every value (private to plan/). */
#ifndef MEG_PLAN_DISTRIBUTE_DISTRIBUTE_H
#define MEG_PLAN_DISTRIBUTE_DISTRIBUTE_H

#include "plan/layout/transfer.h"
#include "plan/program/plan.h"

/* ---- fuse.c ---- */

typedef enum meg_phases {
    MEG_FUSED,
    MEG_PHASED_NORMS,  /* batch norms, since their groups spread over several ranks */
    MEG_PHASED_PIXELS, /* what cannot be cut between pixels as it is */
    MEG_PHASED         /* all that can be */
} meg_phases;

/* Rewrites a graph without changing what it computes: batchnorm + relu and add + relu become one
 * node each, flatten in front of dense disappears. `origin`, if any, is set to an array, to be
 * freed: the old node that each new one comes from. */
meg_status meg_graph_fuse(const meg_graph *g, meg_error *e, meg_phases phases, meg_graph **out,
                          int **origin);

/* ---- moves.c ---- */

/* A graph with a node "move" wherever a value goes from one segment to another, once for each
 * segment that reads it; `segment` (of nodes) is replaced by that of the new graph. */
typedef struct meg_parting {
    int segments;
    int feeder; /* the one of the data's readers; 0: none */
} meg_parting;
meg_status meg_graph_moves(const meg_graph *g, meg_error *e, meg_parting parting, meg_graph **out,
                           int **segment);
bool meg_is_move(const meg_node *v);
bool meg_is_feed(const meg_node *v); /* hands out an input or labels */

/* ---- distribute.c ---- */

/* Sets the entry's meshes and layouts: what each rank makes of every value. */
meg_status meg_entry_distribute(const meg_plan *p, meg_entry *e, meg_error *error);

/* ---- halo.c ---- */

/* What each position of a mesh makes and holds (halo.c). A value that is partial is summed, then copied: the
 * parts of the layout are what ranks have after that. */
meg_part meg_entry_part(const meg_entry *e, int value, int position);
/* With its halo: what the position's nodes of the same segment read. */
meg_box meg_entry_held(const meg_entry *e, int value, int position);
/* Do the ranks make shares of this value, to be summed (or of which the largest counts)? */
bool meg_entry_partial(const meg_entry *e, int value);
/* What the position makes of a node's outputs, and what it reads of a value for it. */
meg_work meg_entry_work(const meg_entry *e, const meg_node *v, int position);
meg_box meg_entry_need(const meg_entry *e, const meg_node *v, int value, int position);
const meg_mesh *meg_entry_mesh(const meg_entry *e, int direction, int segment);

/* Whom the formats of a segment's weights are chosen for, among those with the same channels. */
int meg_segment_model(const meg_entry *e, int segment, int position);
/* Has the position the first pixels, of those with its samples and channels? */
bool meg_segment_first(const meg_entry *e, int segment, int position);

/* ---- exchanges.c ---- */

/* (parts + 1) where the samples of a micro-batch are cut */
const int64_t *meg_plan_samples(const meg_plan *p, int64_t count, int parts);
/* Sets the samples of each segment's positions. */
void meg_entry_find_samples(const meg_plan *p, meg_entry *e);
/* Numbers the values that go from rank to rank. */
void meg_entry_number_exchanges(const meg_plan *p, meg_entry *e);
/* Positions among which are all kinds of them, one after the other: what holds for these holds for all. */
typedef struct meg_telling {
    const meg_entry *e;
    int segment, at, inner, within; /* private */
} meg_telling;

meg_telling meg_telling_new(const meg_entry *e, int segment);
bool meg_telling_next(meg_telling *l, int *position);

/* The positions that may want some of what a position makes of a value, by a halo or a move to `to`: they
 * follow one another. */
typedef struct meg_positions {
    int first, end;
    bool some;        /* of these only: */
    int makes, takes; /* those that take what this position makes, and this one; -1: none */
} meg_positions;
meg_positions meg_entry_takers(const meg_entry *e, int from, int to, int position);
meg_positions meg_entry_peers(const meg_entry *e, int segment,
                              int position); /* of the same samples */
/* The messages that bring them a value: its halo, or what a move brings. */
meg_transfer meg_entry_transfer(meg_pool *pool, const meg_entry *e, int value, int direction,
                                meg_positions to);

/* ---- weights.c ---- */

/* (ranks of a replica) The box of a weight that each holds; empty: none. Those that meet are equal. Replicas
 * are alike. */
void meg_entry_weight(const meg_plan *p, const meg_entry *e, int value, meg_box box[]);

/* ---- wide_halo.c ---- */

/* Which halos ranks make themselves. */
meg_status meg_entry_widen(const meg_plan *p, meg_entry *e, meg_error *error);

#endif
