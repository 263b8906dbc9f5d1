/* What plans know of an open device. */
#ifndef MEG_EXEC_PROFILE_H
#define MEG_EXEC_PROFILE_H

#include "plan/plan.h"

meg_profile meg_profile_of(meg_device *d); /* which must stay */

#endif
