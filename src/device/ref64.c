/* The reference device in double: whole programs, so that two plans can be compared to 1e-10. */
#include "device/device.h"

const meg_device_kind meg_device_ref64 = {
    .name = "ref64",
    .doc = "plain C in double: shows that plans compute the same",
    .real = MEG_F64,
};
