/* The time since some moment in the past, which no one sets back. */
#ifndef MEG_BASE_CLOCK_H
#define MEG_BASE_CLOCK_H

double meg_clock(void); /* seconds */

#endif
