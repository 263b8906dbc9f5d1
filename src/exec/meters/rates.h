/* What this machine does per second, measured. */
#ifndef MEG_EXEC_METERS_RATES_H
#define MEG_EXEC_METERS_RATES_H

#include "device/device.h"
#include "machine/prices.h"

/* Waits for the queue. */
void meg_rates_probe(meg_device *d, meg_rates *out);

#endif
