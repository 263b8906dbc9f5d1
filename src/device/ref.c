/* The reference device: the operators' plain C in float, as they define themselves. */
#include "device/device.h"

const meg_device_kind meg_device_ref = {
    .name = "ref",
    .doc = "plain C in float: the definition that others are judged against",
    .real = MEG_F32,
};
