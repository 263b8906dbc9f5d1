/* An entry, ready to run: kernels prepared, and room for what a step hands out. */
#ifndef MEG_EXEC_COMPILE_H
#define MEG_EXEC_COMPILE_H

#include "comm/allreduce/reduction.h"
#include "exec/engine.h"

typedef struct meg_load { /* what a LOAD needs to know when it runs */
    const meg_entry *entry;
    const meg_station *station;
    const meg_slot *slot;
    const meg_feed *feed;
    const meg_fed *fed; /* of an input or labels, what the step has of them */
    int micro;
} meg_load;

void meg_load_run(void *load, void *to); /* on the device's queue */

typedef struct meg_total { /* a loss, or right answers, of a station: what a step leaves */
    int64_t at;            /* its place */
    double weight;
    int sum;       /* which of the step's outcomes it belongs to */
    double number; /* as read after the step; in its first bytes where reals are floats */
} meg_total;

typedef struct meg_frame_use {
    uint64_t last; /* the device's item that touched it last */
} meg_frame_use;

typedef struct meg_site { /* where programs run */
    meg_device *device;
    const meg_comm *comm;
} meg_site;

typedef struct meg_compiled {
    const meg_entry *entry;
    meg_prepared ***kernel;        /* (stations)(instrs); NULL for what the engine does */
    meg_frame_use **frame;         /* (stations)(frames) */
    meg_load *load;                /* of each line's LOADs, in order; filled as they are issued */
    bool *loads;                   /* value: the rank loads something of it */
    const meg_fed **fed;           /* value: of the step at hand; NULL: none */
    meg_reduction_spec *reduction; /* likewise, of REDUCEs */
    int totals;
    meg_total *total;
    const meg_allreduce_kind *allreduce;
    meg_topology **groups; /* (teams): who shares a node */
} meg_compiled;

/* Entry `which` of the plan, for a device and the ranks of a communicator. */
meg_status meg_compile(meg_compiled *c, meg_error *e, const meg_plan *p, int which,
                       const meg_site *site);
void meg_compiled_clear(meg_compiled *c);

/* What the step has of each value that the rank loads; refuses one that has too little, or of a type
 * that cannot become the value's. */
meg_status meg_compiled_feed(meg_compiled *c, meg_error *e, const meg_feed *feed);

const meg_prepared *meg_compiled_kernel(const meg_compiled *c, const meg_station *t, int instr);
meg_frame_use *meg_compiled_frame(const meg_compiled *c, const meg_station *t, int frame);

/* All but the addresses. */
meg_reduction_spec meg_compiled_reduction(const meg_compiled *c, const meg_team *team,
                                          const meg_instr *in, const meg_slot *slot);

#endif
