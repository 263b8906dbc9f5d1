/* Where stages begin. A plan cuts a network by operations and bytes, which know no machine; a search knows what nodes take.
 *
 *     even     the cut whose slowest stage takes least, by the seconds of one rank's kernels
 *     move     one stage begins a piece earlier or later: what replay is asked about
 *
 * As words they are assign=, the first piece of each further stage.
 */
#ifndef MEG_PLAN_SEARCH_SEAMS_H
#define MEG_PLAN_SEARCH_SEAMS_H

#include "graph/groups.h"

typedef struct meg_seams meg_seams;

/* The pieces of a level. seconds: of each node. NULL: their names cannot stand in words. The pool's. */
meg_seams *meg_seams_new(meg_pool *pool, const meg_graph *g, meg_level level,
                         const double seconds[]);

int meg_seams_pieces(const meg_seams *c);
const char *meg_seams_name(const meg_seams *c, int piece);

/* first: (stages) the first piece of each. False: there are fewer pieces. */
bool meg_seams_even(const meg_seams *c, int stages, int first[]);

/* Of a network whose nodes have these stages; false: some stage's pieces are no neighbours. */
bool meg_seams_find(const meg_seams *c, const int stage_of_node[], int stages, int first[]);

/* Stage `s` begins `by` pieces later; false: it, or its neighbour, would have none. */
bool meg_seams_move(const meg_seams *c, int stages, int first[], int s, int by);

/* How many cuts into so many stages there are, as a number that may be large. */
double meg_seams_ways(const meg_seams *c, int stages);

/* The cut behind this one, of all there are, from {0, 1, 2, ..} on; false: it was the last. */
bool meg_seams_next(const meg_seams *c, int stages, int first[]);

/* "assign=b,c". The pool's. */
const char *meg_seams_words(const meg_seams *c, int stages, const int first[]);

#endif
