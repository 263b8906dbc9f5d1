/* Staging: what the host must see of an arena that is the device's alone (device/device.h).
 *
 *     arena     . . a a a . . b b . . . c c c c . .      a, b, c: what is sent, received, summed, loaded
 *     staging   a a a b b c c c c
 *
 * Two messages of which one writes the memory of the other never run at once (exec/traffic.h), so each
 * byte of the arena needs one byte of staging at most: no lifetimes, no new reason to wait, exact bytes.
 */
#ifndef MEG_PLAN_PROGRAM_STAGING_H
#define MEG_PLAN_PROGRAM_STAGING_H

#include "plan/program/plan.h"

meg_staging
meg_plan_staging(const meg_plan *p); /* of all entries; its stretches are the caller's */

/* The memory that a LOAD sets: that of all micro-batches where their labels come at once. */
int64_t meg_load_bytes(const meg_station *t, const meg_slot *s);

#endif
