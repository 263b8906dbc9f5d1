/* Convolution from plain images of few channels: where oneDNN has no kernel, and copying to a
 * blocked format would multiply by padding.
 *
 * A chunk of output pixels, of one sample, in the order of memory, is gathered into columns: row r
 * holds what (tap, channel) r of each pixel reads, zero in the padding.
 *
 *              pixels 0 .. 63           dy or y: 64 pixels x block filters
 *     row 0  [ x x x ... x ]
 *     row 1  [ x x x ... x ]            y[p]  = bias + sum over r of column[r][p] * weight[r]
 *      ...                              dw[r] =        sum over p of column[r][p] * dy[p]
 *     ones   [ 1 1 1 ... 1 ]            the bias is one more weight, of a pixel that is 1
 *
 * So both passes are outer products of a number and a vector of filters. Sums are per chunk, then
 * per thread, then over threads in order: the same for the same number of threads.
 */
#include "device/cpu/simd/conv/thin.h"
#include "device/cpu/simd/vec.h"

#include <omp.h>

enum {
    CHUNK = MEG_THIN_CHUNK,
    TILE = 8,
    ROWS = 12
}; /* as many sums as registers allow */

typedef struct chunk {
    int64_t n, first; /* sample, pixel */
    int count;
} chunk;

static int64_t volume(const int64_t v[3])
{
    return v[0] * v[1] * v[2];
}

/* Whole lines if they are short: what is gathered comes in few long pieces. */
static int64_t span_of(const meg_thin *j)
{
    int64_t w = j->out[2];
    return w <= CHUNK ? CHUNK / w * w : CHUNK;
}

static int64_t chunks_of(const meg_thin *j)
{
    return (volume(j->out) + span_of(j) - 1) / span_of(j);
}

static chunk chunk_at(const meg_thin *j, int64_t i)
{
    int64_t chunks = chunks_of(j), first = i % chunks * span_of(j);
    return (chunk){i / chunks, first, (int)least(span_of(j), volume(j->out) - first)};
}

static int64_t blocks_of(const meg_thin *j)
{
    return (j->filters + B - 1) / B;
}

/* ---- columns ---- */

/* The pixels i of a piece for which 0 <= at + i * stride < length: lo .. hi - 1. */
typedef struct piece {
    int64_t at, stride;
    int count, lo, hi;
} piece;

static piece piece_of(int64_t at, int64_t stride, int64_t length, int count)
{
    int64_t lo = at < 0 ? -at : 0, hi = at < length ? length - at : 0;
    if (stride > 1) lo = (lo + stride - 1) / stride, hi = (hi + stride - 1) / stride;
    lo = least(lo, count), hi = least(hi, count);
    return (piece){at, stride, count, (int)lo, (int)(hi > lo ? hi : lo)};
}

/* to[i] = line[at + i * stride], 0 outside of the line */
MEG_INLINE void gather(float *restrict to, const float *restrict line, const piece *p)
{
    for (int i = 0; i < p->lo; i++)
        to[i] = 0;
    if (p->stride == 1)
        for (int i = p->lo; i < p->hi; i++)
            to[i] = line[p->at + i];
    else
        for (int i = p->lo; i < p->hi; i++)
            to[i] = line[p->at + i * p->stride];
    for (int i = p->hi; i < p->count; i++)
        to[i] = 0;
}

/* The rows of `count` pixels of one output line, from (d, h, w) = p on. */
static void gather_line(const meg_thin *j, float *to, int64_t n, const int64_t p[3], int count)
{
    int64_t at[3], t[3], plane = j->in[0] * j->in[1] * j->in[2];
    for (t[0] = 0; t[0] < j->taps[0]; t[0]++)
        for (t[1] = 0; t[1] < j->taps[1]; t[1]++)
            for (t[2] = 0; t[2] < j->taps[2]; t[2]++) {
                for (int i = 0; i < 3; i++)
                    at[i] = p[i] * j->stride[i] - j->before[i] + t[i] * j->dilation[i];
                bool inside = at[0] >= 0 && at[0] < j->in[0] && at[1] >= 0 && at[1] < j->in[1];
                piece w = piece_of(at[2], j->stride[2], inside ? j->in[2] : 0, count);
                const float *line = j->x + n * j->channels * plane;
                if (inside) line += (at[0] * j->in[1] + at[1]) * j->in[2];
                for (int64_t c = 0; c < j->channels; c++, to += CHUNK)
                    gather(to, line + c * plane, &w);
            }
}

static void gather_chunk(const meg_thin *j, float *columns, const chunk *k)
{
    int64_t w = j->out[2], h = j->out[1];
    for (int done = 0; done < k->count;) {
        int64_t pixel = k->first + done, p[] = {pixel / (h * w), pixel / w % h, pixel % w};
        int count = (int)least(k->count - done, w - p[2]);
        gather_line(j, columns + done, k->n, p, count);
        done += count;
    }
}

/* ---- forward ---- */

/* TILE pixels of one block of filters. */
MEG_INLINE void forward_tile(float *restrict y, const float *restrict columns,
                             const float *restrict weight, int64_t rows, vec bias)
{
    vec sum[TILE];
    for (int i = 0; i < TILE; i++)
        sum[i] = bias;
    for (int64_t r = 0; r < rows; r++) {
        vec w = load(weight + r * B);
        for (int i = 0; i < TILE; i++)
            sum[i] += splat(columns[r * CHUNK + i]) * w;
    }
    for (int i = 0; i < TILE; i++)
        store(y + i * B, sum[i]);
}

static void forward_chunk(const meg_thin *j, const float *columns, const chunk *k)
{
    int64_t blocks = blocks_of(j), rows = volume(j->taps) * j->channels;
    for (int64_t b = 0; b < blocks; b++) {
        float *y = j->y + ((k->n * blocks + b) * volume(j->out) + k->first) * B;
        const float *weight = j->weight + b * rows * B;
        vec bias = {0};
        for (int l = 0; j->bias && l < lanes_of(j->filters, b); l++)
            bias[l] = j->bias[b * B + l];
        int p = 0;
        for (; p + TILE <= k->count; p += TILE)
            forward_tile(y + p * B, columns + p, weight, rows, bias);
        if (p == k->count) continue;
        float rest[TILE * B];
        forward_tile(rest, columns + p, weight, rows, bias);
        memcpy(y + p * B, rest, sizeof *y * (size_t)((k->count - p) * B));
    }
}

void MEG_SIMD(thin_forward)(const meg_thin *j)
{
    int64_t items = j->samples * chunks_of(j), rows = volume(j->taps) * j->channels + 1;
#pragma omp parallel num_threads(j->threads)
    {
        float *columns = j->scratch + omp_get_thread_num() * rows * CHUNK;
        memset(columns, 0, sizeof *columns * (size_t)(rows * CHUNK)); /* the last tile's tail */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++) {
            chunk k = chunk_at(j, i);
            gather_chunk(j, columns, &k);
            forward_chunk(j, columns, &k);
        }
    }
}

/* ---- weight gradient ---- */

/* dw[r] += sum over `count` pixels of column[r] * dy, for `rows` rows, a constant. */
MEG_INLINE void weight_rows(float *restrict dw, const float *restrict columns,
                            const float *restrict dy, int count, const int rows)
{
    vec sum[ROWS];
    for (int r = 0; r < rows; r++)
        sum[r] = splat(0);
    for (int p = 0; p < count; p++) {
        vec g = load(dy + p * B);
        for (int r = 0; r < rows; r++)
            sum[r] += splat(columns[r * CHUNK + p]) * g;
    }
    for (int r = 0; r < rows; r++)
        store(dw + r * B, load(dw + r * B) + sum[r]);
}

/* One instance per number of rows: only constant ones stay in registers. */
static void weight_tile(float *dw, const float *columns, const float *dy, int count, int rows)
{
    switch (rows) {
    case 1:
        weight_rows(dw, columns, dy, count, 1);
        break;
    case 2:
        weight_rows(dw, columns, dy, count, 2);
        break;
    case 3:
        weight_rows(dw, columns, dy, count, 3);
        break;
    case 4:
        weight_rows(dw, columns, dy, count, 4);
        break;
    case 5:
        weight_rows(dw, columns, dy, count, 5);
        break;
    case 6:
        weight_rows(dw, columns, dy, count, 6);
        break;
    case 7:
        weight_rows(dw, columns, dy, count, 7);
        break;
    case 8:
        weight_rows(dw, columns, dy, count, 8);
        break;
    case 9:
        weight_rows(dw, columns, dy, count, 9);
        break;
    case 10:
        weight_rows(dw, columns, dy, count, 10);
        break;
    case 11:
        weight_rows(dw, columns, dy, count, 11);
        break;
    default:
        weight_rows(dw, columns, dy, count, ROWS);
        break;
    }
}

static void weight_chunk(const meg_thin *j, float *sums, const float *columns, const chunk *k)
{
    int64_t blocks = blocks_of(j), rows = volume(j->taps) * j->channels + 1;
    int64_t tiles = (rows + ROWS - 1) / ROWS;
    for (int64_t b = 0; b < blocks; b++) {
        const float *dy = j->dy + ((k->n * blocks + b) * volume(j->out) + k->first) * B;
        for (int64_t t = 0; t < tiles; t++) { /* of equal size, up to one row */
            int64_t r = rows * t / tiles, end = rows * (t + 1) / tiles;
            weight_tile(sums + (b * rows + r) * B, columns + r * CHUNK, dy, k->count,
                        (int)(end - r));
        }
    }
}

/* Row `i` of all blocks' rows, summed over the threads. */
static void weight_sum(const meg_thin *j, const float *sums, int64_t i, int team)
{
    int64_t rows = volume(j->taps) * j->channels + 1, all = blocks_of(j) * rows;
    int64_t b = i / rows, r = i % rows;
    vec sum = load(sums + i * B);
    for (int t = 1; t < team; t++)
        sum += load(sums + (t * all + i) * B);
    if (r < rows - 1) store(j->dweight + (b * (rows - 1) + r) * B, sum);
    else if (j->dbias)
        memcpy(j->dbias + b * B, &sum, sizeof(float) * (size_t)lanes_of(j->filters, b));
}

void MEG_SIMD(thin_weight)(const meg_thin *j)
{
    int64_t items = j->samples * chunks_of(j), rows = volume(j->taps) * j->channels + 1;
    int64_t all = blocks_of(j) * rows;
    float *sums = j->scratch + j->threads * rows * CHUNK;
#pragma omp parallel num_threads(j->threads)
    {
        int me = omp_get_thread_num(), team = omp_get_num_threads();
        float *columns = j->scratch + me * rows * CHUNK, *mine = sums + me * all * B;
        memset(mine, 0, sizeof *mine * (size_t)(all * B));
        for (int p = 0; p < CHUNK; p++)
            columns[(rows - 1) * CHUNK + p] = 1;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++) {
            chunk k = chunk_at(j, i);
            gather_chunk(j, columns, &k);
            weight_chunk(j, mine, columns, &k);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < all; i++)
            weight_sum(j, sums, i, team);
    }
}
