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
 *
 * Where another program runs this one (valgrind, an emulator, the dynamic linker called by hand), the
 * process is that program's, and to start it anew with these arguments would start something else. So the
 * file that this very code was mapped from must be the one that the kernel would start. The second start
 * finds the setting that the first has made, so that there is no third.
 */
#define _GNU_SOURCE
#include "cli/launch/calm.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SPINS[] =
    "10000"; /* 0.25 ms where a pause takes 25 ns, 0.5 ms where it takes 50 */

/* The file that the address was mapped from, by lines of /proc/self/maps:
 * 55e0-55f0 r-xp 00000000 08:01 1234      /usr/bin/megalith */
static bool file_of(uintptr_t address, char path[PATH_MAX])
{
    char line[PATH_MAX + 128];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        uintptr_t lo, hi;
        const char *name = strchr(line, '/');
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &lo, &hi) != 2 || !name) continue;
        found = lo <= address && address < hi;
        if (found) snprintf(path, PATH_MAX, "%.*s", (int)strcspn(name, "\n"), name);
    }
    if (f) fclose(f);
    return found;
}

/* Links are not compared by name: valgrind answers with the program's. */
static bool is_own(const char *link)
{
    char path[PATH_MAX];
    struct stat own, process;
    if (!file_of((uintptr_t)meg_calm, path)) return false;
    if (stat(path, &own) != 0 || stat(link, &process) != 0) return false;
    return own.st_dev == process.st_dev && own.st_ino == process.st_ino;
}

void meg_calm(char *const argv[])
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || !is_own("/proc/self/exe")) return;
    if (setenv("GOMP_SPINCOUNT", SPINS, 1) == 0) execv("/proc/self/exe", argv);
    /* Where that is not possible it works as well, less calmly. */
}
