/* The far device: memory that the host cannot touch, as that of an accelerator, made of this machine's.
 *
 * The addresses that the host counts with belong to a reservation without access; the bytes lie
 * elsewhere, and only workers know how far (device/arena.h). Kernels run on one queue, fetches and
 * stores of messages on another. Who reads a slot without asking the device dies of it; who does not
 * wait for an event has poison in his numbers (device/poison.h). In double, so that plans on it are
 * compared to 1e-10.
 */
#include "device/poison.h"

#include <stdlib.h>

enum {
    LATE = 16 /* each so many-th kernel or transfer is late: whole matrices of plans run on it */
};

static void *open_far(meg_device *d, meg_error *e)
{
    (void)d;
    return meg_poison_open(e, LATE);
}

const meg_device_kind meg_device_far = {
    .name = "far",
    .doc = "plain C in double behind memory that the host cannot touch: what an accelerator needs",
    .real = MEG_F64,
    .open = open_far,
    .close = free,
    .prepare = meg_poison_prepare,
    .released = meg_poison_released,
    .before = meg_poison_before,
    .far = true,
};
