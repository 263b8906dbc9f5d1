/* Lowering: from a distributed graph and its timetable to the instructions of a rank. */
#ifndef MEG_PLAN_LOWER_LOWER_H
#define MEG_PLAN_LOWER_LOWER_H

#include "plan/program/plan.h"

/* Lowers one entry; held memory is added to the plan as it is first needed. */
meg_status meg_plan_lower(meg_plan *p, meg_error *e, meg_entry *out);

#endif
