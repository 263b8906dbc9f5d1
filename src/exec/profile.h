/* What plans know of an open device. */
#ifndef MEG_EXEC_PROFILE_H
#define MEG_EXEC_PROFILE_H

#include "machine/prices.h"
#include "plan/plan.h"

/* Device and book must stay. NULL, and without one: the built-in book. */
meg_profile meg_profile_priced(meg_device *d, const meg_prices *prices);
meg_profile meg_profile_of(meg_device *d);

#endif
