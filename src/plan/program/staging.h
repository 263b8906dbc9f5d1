/* Staging: what the host must see of an arena that is the device's alone (device/device.h).
 *
 *     arena     . . a a a . . b b . . . c c c c . .      a, b, c: what is sent, received, summed, loaded
 *     staging   a a a b b c c c c
 *
 * Messages whose memory meets in the arena wait for one another there (exec/traffic.h), so they do not
 * meet in staging either; no lifetimes are needed, nothing new can wait, and the bytes are exact.
 */
#ifndef MEG_PLAN_PROGRAM_STAGING_H
#define MEG_PLAN_PROGRAM_STAGING_H

#include "plan/program/plan.h"

meg_staging
meg_plan_staging(const meg_plan *p); /* of all entries; its stretches are the caller's */

/* The memory that a LOAD sets: that of all micro-batches where their labels come at once. */
int64_t meg_load_bytes(const meg_station *t, const meg_slot *s);

#endif
