/* Memory that a rank has taken, for reports: of many ranks, that of the one to look at. */
#ifndef MEG_TRAIN_STEP_TAKEN_H
#define MEG_TRAIN_STEP_TAKEN_H

#include "comm/comm.h"

typedef struct meg_taken {    /* bytes */
    int64_t planned, touched; /* of the arena */
    int64_t rss;              /* of the process */
} meg_taken;

/* Collective. In: this rank's arena. Out, on all ranks: the arena that differs most from its plan, or else the one that needs
 * most; and the most that a process has taken. */
meg_status meg_taken_gather(meg_comm *c, meg_error *e, meg_taken *m);

#endif
