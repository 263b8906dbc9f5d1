/* The checking device: plain C in float with delays and poison (device/poison.h). */
#include "device/poison.h"

#include <stdlib.h>

static void *open_check(meg_device *d, meg_error *e)
{
    (void)d;
    return meg_poison_open(e, 1);
}

const meg_device_kind meg_device_check = {
    .name = "check",
    .doc = "plain C with random delays and poisoned memory: finds programs that do not wait",
    .real = MEG_F32,
    .open = open_check,
    .close = free,
    .prepare = meg_poison_prepare,
    .released = meg_poison_released,
    .before = meg_poison_before,
};
