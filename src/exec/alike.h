/* Ranks that hold the same of a weight sum its gradient as it lies in memory. Each rank's own device
 * chose the order of the elements, though, and machines of other makes, other threads or settings
 * choose others, often of the same size. So ranks compare what they hold, and weights on which those
 * that share them disagree are planned again, in plain format on all ranks:
 *
 *     rank 0   OIx8i8o  Oxi8o                plain  Oxi8o      like ranks keep what their
 *     rank 1   OIx8o8i  Oxi8o      --->      plain  Oxi8o      kernels like best
 *              weight   weight
 */
#ifndef MEG_EXEC_ALIKE_H
#define MEG_EXEC_ALIKE_H

#include "comm/comm.h"
#include "plan/plan.h"

typedef struct meg_alike {
    meg_plan *plan;       /* the caller's */
    int plain;            /* weights that became plain; 0: ranks are alike */
    char value[MEG_TEXT]; /* the first of them */
    int rank[2];          /* the lowest that disagreed on it, */
    meg_format format[2]; /* and how they would hold it */
} meg_alike;

/* Collective; the same answer on all ranks, whose input has the same words. Plans once if they are
 * alike. Fails where ranks disagree on what is plain already. */
meg_status meg_plan_alike(meg_comm *comm, meg_error *e, const meg_graph *g,
                          const meg_plan_input *in, meg_alike *out);

#endif
