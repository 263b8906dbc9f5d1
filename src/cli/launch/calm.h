/* How long threads that wait for one another spin before they sleep. */
#ifndef MEG_CLI_LAUNCH_CALM_H
#define MEG_CLI_LAUNCH_CALM_H

/* Starts this program anew, with the same arguments, so that its OpenMP threads spin for a quarter of a
 * millisecond at most; returns if they do already, or the user has a wish of his own. */
void meg_calm(char *const argv[]);

#endif
