/* Which book of prices plans are made with. */
#ifndef MEG_EXEC_PROBE_BOOK_H
#define MEG_EXEC_PROBE_BOOK_H

#include "base/log.h"
#include "exec/probe/machine.h"

typedef struct meg_book_ask {
    meg_device *device;
    meg_comm *comm;
    int imagined;     /* ranks on a node that are not there: their book, if there is one; 0: none */
    const char *word; /* "builtin", or a file; "": as MEGALITH_PRICES says, or the cache folder's */
    bool probes;      /* where the cache has none, the machine is measured: once, up to 5 s */
    const meg_logger *log;
} meg_book_ask;

/* Where it is kept; false: nowhere, since the built-in book is asked for, or there is no cache folder. */
bool meg_book_path(const meg_book_ask *a, char out[MEG_PRICES_PATH]);

/* Collective: all ranks get the first one's. *out NULL: the built-in book. */
meg_status meg_book_open(const meg_book_ask *a, meg_error *e, meg_prices **out);

#endif
