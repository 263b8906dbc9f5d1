/* What turns asynchronous misuse into NaN: parts of a device that runs plain C.
 *
 *     kernels start late, by a random time         who forgets to wait reads old data
 *     freed memory becomes NaN                     who reads it later shows
 *     what a kernel is to write becomes NaN first  who leaves a hole shows
 *
 * Delays come from the counter-based generator: two runs are alike.
 */
#ifndef MEG_DEVICE_POISON_H
#define MEG_DEVICE_POISON_H

#include "device/device.h"

void *meg_poison_open(meg_error *e, int every); /* each how many-th kernel is late; close: free */
void meg_poison_released(meg_device *d, void *memory, int64_t bytes);
void meg_poison_before(meg_device *d);
bool meg_poison_prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out);

#endif
