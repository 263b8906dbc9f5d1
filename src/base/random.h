/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A number depends on (seed, step, name, index) alone,
 * never on rank, thread or call order, so every plan draws the same.
 */
#ifndef MEG_BASE_RANDOM_H
#define MEG_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct meg_stream { /* what a family of numbers is keyed by */
    uint64_t seed;
    uint64_t step;
    uint64_t name; /* meg_hash of a name */
} meg_stream;

uint64_t meg_hash(const char *text); /* FNV-1a, 64 bit */
/* The same of bytes, which goes on from another hash: that of nothing is meg_hash(""). */
uint64_t meg_hash_bytes(uint64_t hash, const void *data, size_t bytes);
uint64_t meg_hash_word(uint64_t hash, uint64_t word); /* of numbers, one after the other */
uint64_t meg_hash_mix(uint64_t x); /* a bijection that spreads every bit over all; 0 stays 0 */

void meg_random_bits(meg_stream s, uint64_t index, uint32_t out[4]);
double meg_random_uniform(meg_stream s, uint64_t index); /* [0, 1), 53 bits */
float meg_random_normal(meg_stream s, uint64_t index);   /* Box and Muller */
void meg_random_normals(meg_stream s, uint64_t first, int64_t count, float *out); /* many */

/* The i-th element of a permutation of 0..count-1 that depends on the stream alone: a Feistel
 * cipher with cycle walking, so no memory is needed and any element can be asked for. */
int64_t meg_random_permuted(meg_stream s, int64_t count, int64_t i);

#endif
