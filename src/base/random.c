/* Counter-based random numbers: see random.h.
 *
 * Philox4x32-10 as published: ten rounds of two 32 x 32 -> 64 bit products over a counter of four
 * words, the key bumped between rounds. The counter is (index, step), 64 bits each; the key is the
 * seed, disturbed by the mixed name. A name of 0 leaves the key alone, so that the published test
 * vectors can be reached through meg_random_bits.
 */
#include "base/random.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    PHILOX_ROUNDS = 10,
    FEISTEL_ROUNDS = 8
};

static const uint32_t MULTIPLIER[2] = {0xd2511f53, 0xcd9e8d57};
static const uint32_t WEYL[2] = {0x9e3779b9, 0xbb67ae85}; /* golden ratio, sqrt(3) - 1 */

uint64_t meg_hash(const char *text)
{
    return meg_hash_bytes(0xcbf29ce484222325, text, strlen(text));
}

uint64_t meg_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (const unsigned char *at = data; bytes > 0; at++, bytes--)
        hash = (hash ^ *at) * 0x100000001b3;
    return hash;
}

/* The shift carries what the product has moved to the high bits back to the low ones. */
uint64_t meg_hash_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x100000001b3u + (hash >> 29);
}

/* The finaliser of MurmurHash3. */
uint64_t meg_hash_mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

static void philox(uint32_t counter[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)MULTIPLIER[0] * counter[0];
        uint64_t b = (uint64_t)MULTIPLIER[1] * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ k0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ k1;
        counter[3] = (uint32_t)a;
        k0 += WEYL[0];
        k1 += WEYL[1];
    }
}

void meg_random_bits(meg_stream s, uint64_t index, uint32_t out[4])
{
    out[0] = (uint32_t)index;
    out[1] = (uint32_t)(index >> 32);
    out[2] = (uint32_t)s.step;
    out[3] = (uint32_t)(s.step >> 32);
    philox(out, s.seed ^ meg_hash_mix(s.name));
}

static double unit(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return (double)bits * 0x1p-53;
}

double meg_random_uniform(meg_stream s, uint64_t index)
{
    uint32_t bits[4];
    meg_random_bits(s, index, bits);
    return unit(bits[0], bits[1]);
}

/* The four numbers of one block: two pairs, each from two words of 32 bits. */
static void normal_block(meg_stream s, uint64_t block, float out[4])
{
    uint32_t bits[4];
    meg_random_bits(s, block, bits);
    for (int pair = 0; pair < 4; pair += 2) {
        float u = ((float)(bits[pair] >> 8) + 1) * 0x1p-24f; /* in (0, 1] */
        float radius = sqrtf(-2 * logf(u)), angle = (float)bits[pair + 1] * 0x1p-32f;
        out[pair] = radius * cosf(2 * (float)M_PI * angle);
        out[pair + 1] = radius * sinf(2 * (float)M_PI * angle);
    }
}

float meg_random_normal(meg_stream s, uint64_t index)
{
    float four[4];
    normal_block(s, index / 4, four);
    return four[index % 4];
}

void meg_random_normals(meg_stream s, uint64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count;) {
        float four[4];
        uint64_t at = first + (uint64_t)i;
        normal_block(s, at / 4, four);
        for (uint64_t k = at % 4; k < 4 && i < count; k++)
            out[i++] = four[k];
    }
}

/* One pass of the cipher: left and right halves of `half` bits each. */
static uint64_t feistel(meg_stream s, int half, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t bits[4];
        meg_random_bits(s, round << 32 | right, bits);
        uint64_t next = left ^ (bits[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t meg_random_permuted(meg_stream s, int64_t count, int64_t i)
{
    assert(0 <= i && i < count);
    int half = 1; /* the cipher permutes 0..4^half-1, at most four times too many */
    while (half < 32 && (uint64_t)1 << 2 * half < (uint64_t)count)
        half++;

    s.name ^= 0x7065726d75746564; /* apart from other numbers drawn under this name */
    uint64_t x = (uint64_t)i;
    do
        x = feistel(s, half, x);
    while (x >= (uint64_t)count); /* a cycle that began below count comes back below it */
    return (int64_t)x;
}
