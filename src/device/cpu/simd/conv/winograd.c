/* Winograd's convolution, forward and (the weight turned) backward; winograd_tile.h has the maths.
 *
 *     v[point][c][tile]  transformed inputs        y[p][k][tile] = sum over c of u[p][k][c] v[p][c]
 *     u[point][k][c]     transformed weights       y transformed back: 4 x 4 outputs of each tile
 *
 * So each of the 36 points is a matrix product. What fits in the caches decides between two orders
 * of the loops; no sum depends on which thread does what.
 *
 *     by tiles     all of u, shared; each thread takes `part` tiles through all three stages
 *     by filters   v of `batch` tiles, shared; each thread takes `width` blocks of filters of
 *                  `part` tiles, transforms their weights as it needs them, `depth` blocks of
 *                  channels at a time, and adds up; for many filters, whose u is large
 *
 * In v, GROUP tiles of one block of channels are neighbours, then the blocks of a depth: what the
 * innermost loop reads is one run. In u, so are the channels of a *panel*: one or two blocks of
 * filters.
 */
#include "device/cpu/simd/conv/winograd_tile.h"

#include <omp.h>

enum {
    GROUP = MEG_BLOCK * 3 / 4, /* meg_winograd_group */
    PANEL = 2
};

typedef struct range { /* of tiles or blocks */
    int64_t first, count;
} range;

static range cut(int64_t first, int64_t size, int64_t end)
{
    return (range){first, least(size, end - first)};
}

/* ---- stage 1: inputs ---- */

/* Tiles t of the batch that begins with tile `begin`, of layer c. */
static void transform_inputs(const meg_winograd *j, float *v, int64_t begin, range t, int64_t c)
{
    int64_t step = meg_winograd_inputs(j, B);
    range chunk = cut(c / j->depth * j->depth, j->depth, j->from);
    float *to = v + chunk.first * B * j->batch + (c - chunk.first) * GROUP * B;
    tile at = tile_at(j, begin + t.first);
    for (int64_t i = t.first; i < t.first + t.count; i++, tile_next(j, &at))
        layer_tile(j, to + (i / GROUP * chunk.count * GROUP + i % GROUP) * B, step, &at, c);
}

/* ---- weights ---- */

/* Lanes of the pairs of rows at distance `s`: one step of a transposition. */
MEG_INLINE void exchange(vec *row, const int s)
{
    ivec low, high;
#pragma GCC unroll 36
    for (int l = 0; l < B; l++) {
        low[l] = l & s ? B + l - s : l;
        high[l] = l & s ? B + l : l + s;
    }
#pragma GCC unroll 36
    for (int i = 0; i < B; i++) {
        if (i & s) continue;
        vec a = row[i], b = row[i + s];
        row[i] = __builtin_shuffle(a, b, low);
        row[i + s] = __builtin_shuffle(a, b, high);
    }
}

MEG_INLINE void transpose(float *restrict to, const float *restrict from)
{
    vec row[B];
#pragma GCC unroll 36
    for (int i = 0; i < B; i++)
        row[i] = load(from + i * B);
    if (B == 16) exchange(row, B / 2);
    exchange(row, 4);
    exchange(row, 2);
    exchange(row, 1);
#pragma GCC unroll 36
    for (int i = 0; i < B; i++)
        store(to + i * B, row[i]);
}

/* The weights (3, 3, B of c, B of k) between layer c of x and block k of y. */
static const float *weights_of(const meg_winograd *j, int64_t c, int64_t k, float *room)
{
    enum {
        SIZE = B * B,
        ALL = TAPS * TAPS
    };
    if (!j->turned) return j->weight + (k * j->from + c) * ALL * SIZE;
    int64_t n = j->depths, pair = c / n * j->to + k, depth = n - 1 - c % n;
    const float *w = j->weight + (pair * n + depth) * ALL * SIZE;
    for (int t = 0; t < ALL; t++)
        transpose(room + t * SIZE, w + (ALL - 1 - t) * SIZE);
    return room;
}

/* The panels of blocks k, of blocks c. `u` begins with the first of each. */
static void transform_weights(const meg_winograd *j, float *u, range c, range k)
{
    int64_t step = meg_winograd_weights(j, B);
    float room[TAPS * TAPS * B * B];
    for (int64_t q = 0; q < k.count; q++) {
        int64_t lead = q % PANEL, vectors = least(PANEL, k.count - q + lead);
        float *panel = u + (q - lead) * c.count * B * B + lead * B;
        for (int64_t b = 0; b < c.count; b++) {
            const float *w = weights_of(j, c.first + b, k.first + q, room);
            for (int l = 0; l < B; l++) {
                vec g[TAPS * TAPS];
#pragma GCC unroll 36
                for (int t = 0; t < TAPS * TAPS; t++)
                    g[t] = load(w + (t * B + l) * B);
                taps_tile(panel + (b * B + l) * vectors * B, step, g, TAPS);
            }
        }
    }
}

/* ---- stage 2: products ---- */

typedef struct product {
    float *y;       /* (vectors, tiles, B), the vectors `apart` floats apart */
    const float *v; /* (blocks, GROUP, B) */
    const float *u; /* (blocks, B, vectors, B) */
    int64_t blocks, apart;
    bool more; /* add to y */
} product;

/* sum += v * u of one channel */
MEG_INLINE void add_channel(vec sum[][PANEL], const float *restrict v, const float *restrict u,
                            const int tiles, const int vectors)
{
    vec w[PANEL];
    for (int k = 0; k < vectors; k++)
        w[k] = load(u + k * B);
#pragma GCC unroll 36
    for (int i = 0; i < tiles; i++)
        for (int k = 0; k < vectors; k++)
            sum[i][k] += splat(v[i * B]) * w[k];
}

/* y = sum over the channels of v * u; `tiles` and `vectors` are constants. */
MEG_INLINE void multiply_group(const product *p, const int tiles, const int vectors)
{
    vec sum[GROUP][PANEL];
    const float *v = p->v, *u = p->u;
#pragma GCC unroll 36
    for (int i = 0; i < tiles; i++)
        for (int k = 0; k < vectors; k++)
            sum[i][k] = p->more ? load(p->y + k * p->apart + i * B) : splat(0);
    for (int64_t b = 0; b < p->blocks; b++, v += GROUP * B)
        for (int c = 0; c < B; c += 4, u += 4 * vectors * B)
#pragma GCC unroll 36
            for (int e = 0; e < 4; e++) /* four channels: fewer moves between registers */
                add_channel(sum, v + c + e, u + e * vectors * B, tiles, vectors);
#pragma GCC unroll 36
    for (int i = 0; i < tiles; i++)
        for (int k = 0; k < vectors; k++)
            store(p->y + k * p->apart + i * B, sum[i][k]);
}

/* One instance per size: only constant ones stay in registers. A last group is rounded up to a
 * third: what it then multiplies too much is never read. */
static void multiply(const product *p, int64_t tiles, int64_t vectors)
{
    enum {
        THIRD = GROUP / 3
    };
    int thirds = (int)least((tiles + THIRD - 1) / THIRD, 3);
    switch (thirds * PANEL + (int)vectors) {
    case 1 * PANEL + 1:
        multiply_group(p, THIRD, 1);
        break;
    case 1 * PANEL + 2:
        multiply_group(p, THIRD, 2);
        break;
    case 2 * PANEL + 1:
        multiply_group(p, 2 * THIRD, 1);
        break;
    case 2 * PANEL + 2:
        multiply_group(p, 2 * THIRD, 2);
        break;
    case 3 * PANEL + 1:
        multiply_group(p, GROUP, 1);
        break;
    default:
        multiply_group(p, GROUP, 2);
        break;
    }
}

/* All points, for tiles t of the batch, blocks c of x, `width` blocks of y. */
static void multiply_points(const meg_winograd *j, float *const at[3], range t, range c,
                            int64_t width)
{
    float *y = at[0], *v = at[1], *u = at[2];
    product p = {.blocks = c.count, .apart = j->part * B, .more = c.first > 0};
    v += c.first * B * j->batch + t.first * c.count * B;
    for (int point = 0; point < POINTS; point++) {
        for (int64_t k = 0; k < width; k += PANEL)
            for (int64_t i = 0; i < t.count; i += GROUP) {
                p.y = y + (k * j->part + i) * B;
                p.v = v + i * c.count * B;
                p.u = u + k * c.count * B * B;
                multiply(&p, t.count - i, least(PANEL, width - k));
            }
        y += meg_winograd_outputs(j, B);
        v += meg_winograd_inputs(j, B);
        u += meg_winograd_weights(j, B);
    }
}

/* ---- stage 3: outputs ---- */

static vec bias_of(const meg_winograd *j, int64_t k)
{
    vec bias = {0};
    for (int l = 0; j->bias && l < lanes_of(j->filters, k); l++)
        bias[l] = j->bias[k * B + l];
    return bias;
}

/* Tiles t (counted from the first of all), of blocks k; y begins with the first of each. */
static void transform_outputs(const meg_winograd *j, const float *y, range t, range k)
{
    int64_t step = meg_winograd_outputs(j, B), w = j->out[1];
    for (int64_t q = 0; q < k.count; q++) {
        vec bias = bias_of(j, k.first + q);
        tile at = tile_at(j, t.first);
        for (int64_t i = 0; i < t.count; i++, tile_next(j, &at)) {
            vec out[TILE * TILE];
            result_tile(out, y + (q * j->part + i) * B, step, TILE);
            int64_t first[] = {at.row * TILE, at.column * TILE};
            int64_t rows = least(TILE, j->out[0] - first[0]);
            int64_t columns = least(TILE, w - first[1]);
            float *to = j->y + plane_of_block(j, at.plane, k.first + q) +
                        (first[0] * w + first[1]) * B;
#pragma GCC unroll 36
            for (int a = 0; a < TILE; a++)
#pragma GCC unroll 36
                for (int b = 0; b < TILE; b++)
                    if (a < rows && b < columns)
                        store(to + (a * w + b) * B, out[a * TILE + b] + bias);
        }
    }
}

/* ---- the two orders ---- */

/* This thread's part of the scratch memory, after what is shared. */
static float *own_memory(const meg_winograd *j, int64_t shared, int64_t own)
{
    return aligned(j->scratch) + POINTS * (shared + omp_get_thread_num() * own);
}

static void by_tiles(const meg_winograd *j)
{
    int64_t inputs = meg_winograd_inputs(j, B), weights = meg_winograd_weights(j, B);
    int64_t outputs = meg_winograd_outputs(j, B);
    float *u = aligned(j->scratch);
    range every = {0, j->from};
#pragma omp parallel num_threads(j->threads)
    {
        float *v = own_memory(j, weights, inputs + outputs), *y = v + POINTS * inputs;
#pragma omp for schedule(dynamic)
        for (int64_t k = 0; k < j->to; k += PANEL)
            transform_weights(j, u + k * j->from * B * B, every, cut(k, PANEL, j->to));
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < j->tiles; first += j->part) {
            range t = cut(first, j->part, j->tiles), here = {0, t.count};
            for (int64_t c = 0; c < j->from; c++)
                transform_inputs(j, v, first, here, c);
            multiply_points(j, (float *[]){y, v, u}, here, every, j->to);
            transform_outputs(j, y, t, (range){0, j->to});
        }
    }
}

/* Part t of the batch that begins with tile `begin`, filters k. */
static void one_width(const meg_winograd *j, float *const at[3], int64_t begin, range t, range k)
{
    for (int64_t c = 0; c < j->from; c += j->depth) {
        range chunk = cut(c, j->depth, j->from);
        transform_weights(j, at[2], chunk, k);
        multiply_points(j, at, t, chunk, k.count);
    }
    transform_outputs(j, at[0], (range){begin + t.first, t.count}, k);
}

static void by_filters(const meg_winograd *j)
{
    int64_t inputs = meg_winograd_inputs(j, B), weights = meg_winograd_weights(j, B);
    int64_t outputs = meg_winograd_outputs(j, B);
    int64_t widths = (j->to + j->width - 1) / j->width;
    float *v = aligned(j->scratch);
#pragma omp parallel num_threads(j->threads)
    {
        float *u = own_memory(j, inputs, weights + outputs), *y = u + POINTS * weights;
        for (int64_t begin = 0; begin < j->tiles; begin += j->batch) {
            int64_t batch = least(j->batch, j->tiles - begin);
            int64_t parts = (batch + j->part - 1) / j->part;
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < parts * j->from; i++)
                transform_inputs(j, v, begin, cut(i / j->from * j->part, j->part, batch),
                                 i % j->from);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < parts * widths; i++)
                one_width(j, (float *[]){y, v, u}, begin, cut(i / widths * j->part, j->part, batch),
                          cut(i % widths * j->width, j->width, j->to));
        }
    }
}

void MEG_SIMD(winograd)(const meg_winograd *j)
{
    if (j->by_filters) by_filters(j);
    else by_tiles(j);
}
