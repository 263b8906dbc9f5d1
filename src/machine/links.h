/* The links of a machine from the lines of a book of prices (exec/meters/links.h writes them):
 *
 *     inside latency=4e-07 pairs=1 at=1024:2.1e+09,16384:6e+09          each message alone
 *     inside latency=5e-07 pairs=1 both=yes at=1048576:3e+09            with one the other way at once
 *     between latency=2e-05 pairs=4 at=...                              with three neighbours at once
 *
 * The first says what a message takes; the others what all messages of a node share, where they are slower
 * together than alone.
 */
#ifndef MEG_MACHINE_LINKS_H
#define MEG_MACHINE_LINKS_H

#include "machine/description.h"
#include "machine/prices.h"

/* Kinds of links that the book has nothing of stay as they are. */
meg_status meg_links_read(meg_error *e, const meg_prices *book, meg_machine *m);

#endif
