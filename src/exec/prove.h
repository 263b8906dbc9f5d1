/* Before the first step: rank 0 proves that the programs of all ranks fit together (plan/events/events.h), so that no plan
 * hangs a job. Of many ranks those of one class (plan/classes/classes.h) compare digests (plan/digest.h), and one of
 * each class sends its list; where they differ, and of few ranks, all do. Collective; the same answer on all ranks. */
#ifndef MEG_EXEC_PROVE_H
#define MEG_EXEC_PROVE_H

#include "comm/comm.h"
#include "plan/plan.h"

meg_status meg_prove(meg_comm *comm, meg_error *e, const meg_plan *p);

#endif
