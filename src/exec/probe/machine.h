/* The book of prices of this machine: made in some seconds, kept in the user's cache folder. */
#ifndef MEG_EXEC_PROBE_MACHINE_H
#define MEG_EXEC_PROBE_MACHINE_H

#include "comm/comm.h"
#include "device/device.h"
#include "exec/probe/timings.h"
#include "machine/prices.h"

enum {
    MEG_PRICES_PATH = 4096
};

/* What a book for this device and these ranks says of itself; its rates are not measured. */
meg_prices_head meg_machine_head(meg_device *d, meg_comm *c);

/* $MEGALITH_CACHE, $XDG_CACHE_HOME/megalith or ~/.cache/megalith, and in it
 * prices-HOST-ISA-tTHREADS-rRANKS.txt; false: there is no such folder, or its name is too long. */
bool meg_prices_path(const meg_prices_head *h, char out[MEG_PRICES_PATH]);

/* *out NULL: there is no such file. */
meg_status meg_prices_load(meg_error *e, const char *path, meg_prices **out);
meg_status meg_prices_save(meg_error *e, const char *path, const meg_prices *p); /* makes folders */

typedef struct meg_probe_time {
    double seconds;  /* of the process' own, for each thread; it takes little more */
    double patience; /* times as long may it take on the wall, where others have the cores */
} meg_probe_time;

/* Collective. Rates, and models of a spread of kernels: all ranks measure at once, so that they share
 * the machine as they do in a run, and have the same book then. */
meg_status meg_machine_probe(meg_device *d, meg_comm *c, meg_error *e, const meg_probe_time *time,
                             meg_prices **out);

#endif
