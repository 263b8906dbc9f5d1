/* What messages cost, by size and by how many pairs of ranks talk at once: lines of a book of prices.
 *
 *     inside latency=4e-07 hop=6e-06 pairs=1 at=1024:2.1e+09,...       of ranks that share a node
 *     inside latency=4e-07 pairs=1 both=yes at=...                     with a message the other way at once
 *     between latency=2e-05 pairs=4 at=...                             of ranks on two nodes
 *
 * A message of so many bytes takes latency + bytes / bandwidth, where at= has the bandwidth of each of
 * the pairs at this size; each step of a sum takes hop instead of the
 * latency, and its bytes go, and are added, as sums= has it (sums.h).
 */
#ifndef MEG_EXEC_METERS_LINKS_H
#define MEG_EXEC_METERS_LINKS_H

#include "comm/comm.h"
#include "machine/prices.h"

/* Collective, of at least two ranks. Takes some tenths of a second. All ranks' books get the same lines. */
meg_status meg_links_probe(meg_comm *c, meg_error *e, meg_prices *book);

#endif
