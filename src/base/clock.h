/* Clocks, in seconds. */
#ifndef MEG_BASE_CLOCK_H
#define MEG_BASE_CLOCK_H

double meg_clock(void);         /* since some moment in the past; no one sets it back */
double meg_clock_thread(void);  /* that this thread has computed */
double meg_clock_process(void); /* that all threads have, together */

#endif
