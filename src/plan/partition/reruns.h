/* Reruns: which blocks of a station backward runs forward again (recompute=segments), by dynamic
 * programming over the blocks in order.
 *
 *     blocks        0   1   2   3   4   5   6   7
 *     forward       |   :   :   |   :   :   k   k       | what crosses into another rerun stays
 *     backward      run 0 1 2 again, then back; before that 3 4 5; 6 and 7 were kept
 *
 * A block is kept (all that backward reads of it stays, but what is cheap to make again), or it lies in a
 * rerun: then only what blocks behind the rerun read of it stays, and what cannot be made again, however
 * far its readers are. Of a rerun all that backward reads is there at once when its turn has come. The
 * cut has the least work done twice among all whose bytes are within a limit:
 *
 *     one frame        max over reruns s of  (kept of those before s) + (all of s) + (working memory)
 *     several frames   frames x (kept of all) + max over s of (the rest of s) + (working memory)
 *
 * This is the chain of Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova ("Optimal checkpointing for
 * heterogeneous chains", 2019; Rotor) with values that live across many blocks, and each block run again
 * at most once. It is the optimum of this measure (t432-reruns enumerates), but for chains with more than
 * MEG_RERUN_STATES or MEG_RERUN_EXTRAS ways, of which only some are looked at; what placement makes of it
 * is known once it is lowered (plan/lower/attempts.c).
 */
#ifndef MEG_PLAN_PARTITION_RERUNS_H
#define MEG_PLAN_PARTITION_RERUNS_H

#include "base/pool.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MEG_RERUN_STATES = 512, /* of a block: ways that are no worse than others */
    MEG_RERUN_EXTRAS =
        64, /* amounts of working memory that are tried, where frames are several; .. */
    MEG_RERUN_BOUNDS = 12 /* .. where there are more, so many of them */
};

typedef struct meg_chain_value { /* that backward needs, or that what it needs is made of */
    int block;                   /* that makes it */
    int last;                    /* block that needs it last */
    int64_t bytes;
    int64_t halo; /* bytes that came from others, which stay to make it again */
    double work;  /* to make it again */
    bool held;    /* a kept block keeps it */
    bool stays;   /* it cannot be made again */
} meg_chain_value;

typedef struct meg_chain_block {
    int64_t fixed;    /* bytes that it keeps anyway */
    int64_t backward; /* bytes of working memory while it goes back, beside what is kept */
    int64_t forward;  /* likewise, forward */
    int64_t entry;    /* gradients that are there when its way back begins */
} meg_chain_block;

typedef struct meg_chain {
    int blocks, values;
    meg_chain_block *block;
    meg_chain_value *value; /* sorted by block */
    int frames;             /* micro-batches that are kept at once */
    bool apart;             /* working memory lies beside the frames */
} meg_chain;

/* Sets the rerun of every block, -1: kept. Returns the work done twice, infinite if no cut is within the
 * limit; then nothing is set. */
double meg_chain_cut(const meg_chain *c, int64_t limit, int rerun[]);
int64_t meg_chain_bytes(const meg_chain *c, const int rerun[]); /* of this cut */
double meg_chain_work(const meg_chain *c, const int rerun[]);   /* likewise */
int64_t meg_chain_least(const meg_chain *c);                    /* the least limit that has a cut */

#endif
