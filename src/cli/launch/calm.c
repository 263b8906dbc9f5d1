/* Calm: see calm.h.
 *
 *     core 0   [work ][spin ..............][work]      another program has core 1 for 4 ms: thread 0,
 *     core 1   [work .. other program ..  ][work]      which spins, takes a time slice of core 0 from
 *                                                      others, and is given less later
 *
 * GNU's libgomp lets threads spin 300,000 times, 7 to 15 ms, which is several time slices; with another
 * busy program on each core, two threads were slower than one. Most waits are short, since kernels follow
 * one another within microseconds, so that a short spin loses nothing on an idle machine. libgomp reads its
 * settings when the program begins, before main: hence the second start. oneDNN uses the same library.
 */
#define _GNU_SOURCE
#include "cli/launch/calm.h"

#include <stdlib.h>
#include <unistd.h>

static const char SPINS[] =
    "10000"; /* 0.25 ms where a pause takes 25 ns, 0.5 ms where it takes 50 */

void meg_calm(char *const argv[])
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", SPINS, 1) == 0) execv("/proc/self/exe", argv);
    /* Where that is not possible it works as well, less calmly. */
}
