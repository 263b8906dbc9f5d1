/* The profile of a device: see profile.h. */
#include "exec/profile.h"

static void describe(void *device, const meg_request *r, meg_spec *s)
{
    meg_device_describe(device, r, s);
}

meg_profile meg_profile_priced(meg_device *d, const meg_prices *prices)
{
    return (meg_profile){d, describe, meg_device_real(d), meg_device_kind_of(d)->far, prices};
}

meg_profile meg_profile_of(meg_device *d)
{
    return meg_profile_priced(d, NULL);
}
