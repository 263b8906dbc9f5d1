/* Copies between formats: plain to blocked and back, by transposing squares of B pixels x B
 * channels in registers; and the gathering of lanes that concat and its gradient are made of.
 */
#include "device/cpu/simd/vec.h"

enum {
    TILE = 1024
}; /* pixels per task: a multiple of every B */

/* ---- plain <-> blocked ---- */

MEG_INLINE vec interleave(vec a, vec b, int half) /* a0 b0 a1 b1 ...: of the first or second half */
{
    ivec m;
    for (int l = 0; l < B; l++)
        m[l] = half * B / 2 + l / 2 + (l % 2) * B;
    return __builtin_shuffle(a, b, m);
}

/* B rows become B columns: log2(B) rounds, each interleaving row i with row i + B/2. */
MEG_INLINE void transpose(vec r[B])
{
#pragma GCC unroll 4
    for (int step = 1; step < B; step *= 2) {
        vec s[B];
#pragma GCC unroll 8
        for (int i = 0; i < B / 2; i++) {
            s[2 * i] = interleave(r[i], r[i + B / 2], 0);
            s[2 * i + 1] = interleave(r[i], r[i + B / 2], 1);
        }
#pragma GCC unroll 16
        for (int i = 0; i < B; i++)
            r[i] = s[i];
    }
}

/* One square; rows that do not exist are zero. */
MEG_INLINE void pack_square(float *to, const float *from, int64_t pixels, int lanes, bool past)
{
    vec r[B];
#pragma GCC unroll 16
    for (int l = 0; l < B; l++)
        r[l] = l < lanes ? load(from + l * pixels) : (vec){0};
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < B; i++)
        put(to + i * B, r[i], past);
}

MEG_INLINE void unpack_square(float *to, const float *from, int64_t pixels, int lanes)
{
    vec r[B];
#pragma GCC unroll 16
    for (int i = 0; i < B; i++)
        r[i] = load(from + i * B);
    transpose(r);
#pragma GCC unroll 16
    for (int l = 0; l < B; l++)
        if (l < lanes) store(to + l * pixels, r[l]);
}

typedef struct stretch {    /* pixels lo..hi-1 of one channel block of one sample */
    int64_t blocked, plain; /* offsets of its block, of its first channel */
    int64_t lo, hi;
    int lanes;
} stretch;

static int64_t stretches(const meg_simd_copy *j)
{
    return j->samples * j->blocks * ((j->pixels + TILE - 1) / TILE);
}

static stretch stretch_at(const meg_simd_copy *j, int64_t k)
{
    int64_t tiles = (j->pixels + TILE - 1) / TILE, plane = k / tiles, lo = k % tiles * TILE;
    int64_t n = plane / j->blocks, b = plane % j->blocks;
    return (stretch){plane * j->pixels * B, (n * j->channels + b * B) * j->pixels, lo,
                     least(lo + TILE, j->pixels), lanes_of(j->channels, b)};
}

MEG_INLINE void pack_stretch(const meg_simd_copy *j, stretch s, bool past)
{
    const float *from = j->from + s.plain;
    float *to = j->to + s.blocked;
    int64_t i = s.lo;
    for (; i + B <= s.hi; i += B)
        pack_square(to + i * B, from + i, j->pixels, s.lanes, past);
    if (i < s.hi && s.hi - s.lo >= B) { /* the tail: a whole square that ends there */
        i = s.hi - B;
        pack_square(to + i * B, from + i, j->pixels, s.lanes, past);
        i = s.hi;
    }
    for (; i < s.hi; i++)
        for (int l = 0; l < B; l++)
            to[i * B + l] = l < s.lanes ? from[l * j->pixels + i] : 0;
    if (past) flush();
}

static void unpack_stretch(const meg_simd_copy *j, stretch s)
{
    const float *from = j->from + s.blocked;
    float *to = j->to + s.plain;
    int64_t i = s.lo;
    for (; i + B <= s.hi; i += B)
        unpack_square(to + i, from + i * B, j->pixels, s.lanes);
    if (i < s.hi && s.hi - s.lo >= B) {
        i = s.hi - B;
        unpack_square(to + i, from + i * B, j->pixels, s.lanes);
        i = s.hi;
    }
    for (; i < s.hi; i++)
        for (int l = 0; l < s.lanes; l++)
            to[l * j->pixels + i] = from[i * B + l];
}

void MEG_SIMD(pack)(const meg_simd_copy *j)
{
    int64_t tasks = stretches(j);
    bool past = far_away(j->to, j->samples * j->blocks * j->pixels * B);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t k = 0; k < tasks; k++)
        if (past) pack_stretch(j, stretch_at(j, k), true);
        else pack_stretch(j, stretch_at(j, k), false);
}

void MEG_SIMD(unpack)(const meg_simd_copy *j)
{
    int64_t tasks = stretches(j);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t k = 0; k < tasks; k++)
        unpack_stretch(j, stretch_at(j, k));
}

/* ---- gathering lanes ---- */

typedef struct lift { /* a piece, made ready: which lanes of what go where */
    const float *from;
    ivec order, mask;
} lift;

static lift lift_of(const meg_simd_gather *j, const meg_simd_piece *p, const int64_t at[4])
{
    const meg_simd_side *s = &j->from_at[p->source];
    lift f = {.from = j->from[p->source] + s->first + at[0] * s->sample + p->block * s->block +
                      at[2] * s->slice + at[3] * s->row};
    for (int l = 0; l < B; l++) {
        bool in = l >= p->to && l < p->to + p->lanes;
        f.mask[l] = in ? -1 : 0;
        f.order[l] = in ? l - p->to + p->lane : 0;
    }
    return f;
}

/* Pixels lo..hi-1 of the row at (n, b, d, h). */
static void gather_row(const meg_simd_gather *j, const int64_t at[4], int64_t lo, int64_t hi)
{
    lift f[B]; /* every piece fills at least one lane */
    const meg_simd_side *s = &j->to_at;
    int64_t first = j->first[at[1]], count = j->first[at[1] + 1] - first;
    float *to = j->to + s->first + at[0] * s->sample + at[1] * s->block + at[2] * s->slice +
                at[3] * s->row;
    for (int64_t k = 0; k < count; k++)
        f[k] = lift_of(j, &j->piece[first + k], at);
    if (count == 1 && j->piece[first].lanes == B) {
        memcpy(to + lo * B, f[0].from + lo * B, (size_t)((hi - lo) * B) * sizeof(float));
        return;
    }
    for (int64_t i = lo; i < hi; i++) {
        vec sum = {0};
        for (int64_t k = 0; k < count; k++) {
            vec v = __builtin_shuffle(load(f[k].from + i * B), f[k].order);
            sum = (vec)((ivec)sum | (f[k].mask & (ivec)v));
        }
        store(to + i * B, sum);
    }
}

void MEG_SIMD(gather)(const meg_simd_gather *j)
{
    const meg_simd_part *p = &j->part;
    int64_t pixels = p->width / B, tiles = (pixels + TILE - 1) / TILE;
    int64_t tasks = p->samples * p->blocks * p->slices * p->rows * tiles;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t k = 0; k < tasks; k++) {
        int64_t row = k / tiles, lo = k % tiles * TILE;
        int64_t at[4] = {row / (p->rows * p->slices * p->blocks),
                         row / (p->rows * p->slices) % p->blocks, row / p->rows % p->slices,
                         row % p->rows};
        gather_row(j, at, lo, least(lo + TILE, pixels));
    }
}
