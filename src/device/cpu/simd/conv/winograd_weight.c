/* The weight gradient of Winograd's convolution: 3 x 3 "outputs" of 4 x 4 "taps", the tiles of dy.
 *
 *     v[point][c][tile]  transformed inputs        s[p][c][k] = sum over tiles of v[p][c] z[p][k]
 *     z[point][k][tile]  transformed gradients     s transformed back: the 3 x 3 taps of (c, k)
 *
 * The tiles come in batches, which add to s one after the other; the blocks of filters in widths,
 * for which s fits in a cache.
 *
 *     for each width of filters
 *         for each batch of tiles
 *             transform inputs and gradients     one block of channels, `part` tiles at a time
 *             s += v z                           one point, one panel of filters at a time
 *         transform s back
 *
 * Either all threads do each of these steps together; or, where s is small, each thread has its own
 * share of the tiles, and an s, v and z that stay in its cache, until at last the shares' s are
 * added in order. The bias gradient sums the tiles of dy while they are at hand.
 */
#include "device/cpu/simd/conv/winograd_tile.h"

#include <omp.h>

enum {
    ROWS = B / 2, /* channels of the innermost loop: ROWS x PANEL sums in registers */
    PANEL = 3
};

typedef struct memory {
    float *v, *z, *s; /* (POINTS, blocks, batch, B) twice, (POINTS, c, k) */
    float *bias;      /* (parts, width, B) */
} memory;

static memory memory_of(const meg_winograd *j, int64_t share)
{
    memory m;
    m.v = aligned(j->scratch) + share * meg_winograd_share(j, B);
    m.z = m.v + POINTS * meg_winograd_inputs(j, B);
    m.s = m.z + POINTS * meg_winograd_gradients(j, B);
    m.bias = m.s + POINTS * meg_winograd_products(j, B);
    return m;
}

typedef struct turn {     /* of the outer loops */
    int64_t k, width;     /* first block of filters, blocks */
    int64_t begin, end;   /* tiles of the share */
    int64_t first, tiles; /* of the batch */
    int me, team;         /* which of the threads that work on it together */
} turn;

static turn turn_of(const meg_winograd *j, int64_t share)
{
    return (turn){.width = j->width,
                  .begin = j->tiles * share / j->shares,
                  .end = j->tiles * (share + 1) / j->shares,
                  .team = 1};
}

/* ---- transforms ---- */

static void transform_inputs(const meg_winograd *j, float *v, const turn *o, int64_t part,
                             int64_t c)
{
    int64_t step = meg_winograd_inputs(j, B), first = part * j->part;
    int64_t end = least(first + j->part, o->tiles);
    tile at = tile_at(j, o->first + first);
    for (int64_t i = first; i < end; i++, tile_next(j, &at))
        layer_tile(j, v + (c * j->batch + i) * B, step, &at, c);
}

/* Block k of the width; adds its tiles to the part's sum for the bias. */
static void transform_gradients(const meg_winograd *j, const memory *m, const turn *o, int64_t part,
                                int64_t k)
{
    int64_t step = meg_winograd_gradients(j, B), first = part * j->part;
    int64_t end = least(first + j->part, o->tiles);
    tile at = tile_at(j, o->first + first);
    float room[TILE * TILE * B], *bias = m->bias + (part * j->width + k) * B;
    vec sum = splat(0);
    for (int64_t i = first; i < end; i++, tile_next(j, &at)) {
        int64_t yx[] = {at.row * TILE, at.column * TILE};
        const float *plane = j->dy + plane_of_block(j, at.plane, o->k + k);
        pixels p = pixels_of(plane, j->out, yx, TILE, room);
        vec g[TILE * TILE];
#pragma GCC unroll 36
        for (int a = 0; a < TILE * TILE; a++)
            sum += g[a] = load(p.at + a / TILE * p.row + a % TILE * B);
        taps_tile(m->z + (k * j->batch + i) * B, step, g, TILE);
    }
    if (o->first > o->begin) sum += load(bias);
    store(bias, sum);
}

/* ---- products ---- */

typedef struct product {
    float *s;           /* (ROWS, all filters of the width) */
    const float *v, *z; /* (tiles, B); the vectors of z `apart` floats apart */
    int64_t tiles, apart, row;
    bool more; /* add to s */
} product;

/* s = sum over tiles of v * z; `vectors` is a constant. */
MEG_INLINE void multiply_tiles(const product *p, const int vectors)
{
    vec sum[ROWS][PANEL];
    const float *restrict v = p->v, *restrict z = p->z;
#pragma GCC unroll 36
    for (int c = 0; c < ROWS; c++)
        for (int k = 0; k < vectors; k++)
            sum[c][k] = splat(0);
    for (int64_t i = 0; i < p->tiles; i++, v += B, z += B) {
        vec g[PANEL];
        for (int k = 0; k < vectors; k++)
            g[k] = load(z + k * p->apart);
#pragma GCC unroll 36
        for (int c = 0; c < ROWS; c++)
            for (int k = 0; k < vectors; k++)
                sum[c][k] += splat(v[c]) * g[k];
    }
#pragma GCC unroll 36
    for (int c = 0; c < ROWS; c++)
        for (int k = 0; k < vectors; k++) {
            float *s = p->s + c * p->row + k * B;
            if (p->more) sum[c][k] += load(s);
            store(s, sum[c][k]);
        }
}

static void multiply(const product *p, int64_t vectors)
{
    switch (vectors) {
    case 1:
        multiply_tiles(p, 1);
        break;
    case 2:
        multiply_tiles(p, 2);
        break;
    default:
        multiply_tiles(p, 3);
        break;
    }
}

/* Panels of three, but 2 + 2 instead of 3 + 1: panel i of `width` blocks begins here. */
static int64_t panel_start(int64_t i, int64_t width)
{
    int64_t start = i * PANEL;
    return width % PANEL == 1 && width > 1 && start == width - 1 ? start - 1 : least(start, width);
}

static void multiply_panel(const meg_winograd *j, const memory *m, const turn *o, int64_t point,
                           int64_t panel)
{
    int64_t k = panel_start(panel, o->width), vectors = panel_start(panel + 1, o->width) - k;
    const float *v = m->v + point * meg_winograd_inputs(j, B);
    float *s = m->s + point * meg_winograd_products(j, B) + k * B;
    product p = {.tiles = o->tiles, .apart = j->batch * B, .row = o->width * B};
    p.z = m->z + point * meg_winograd_gradients(j, B) + k * j->batch * B;
    p.more = o->first > o->begin;
    for (int64_t c = 0; c < j->from * B; c += ROWS) {
        p.v = v + c / B * j->batch * B + c % B;
        p.s = s + c * p.row;
        multiply(&p, vectors);
    }
}

/* ---- results ---- */

/* Of layer c, and block k of the width. */
static void transform_back(const meg_winograd *j, const memory *m, const turn *o, int64_t c,
                           int64_t k)
{
    int64_t step = meg_winograd_products(j, B);
    float *to = j->dweight + ((o->k + k) * j->from + c) * TAPS * TAPS * B * B;
    for (int l = 0; l < B; l++) {
        vec out[TAPS * TAPS];
        result_tile(out, m->s + ((c * B + l) * o->width + k) * B, step, TAPS);
#pragma GCC unroll 36
        for (int t = 0; t < TAPS * TAPS; t++)
            store(to + (t * B + l) * B, out[t]);
    }
}

/* Of block k of the width, over the parts of all shares. */
static void sum_bias(const meg_winograd *j, const turn *o, int64_t k)
{
    vec sum = splat(0);
    for (int64_t share = 0; share < j->shares; share++) {
        memory m = memory_of(j, share);
        turn t = turn_of(j, share);
        int64_t tiles = least(j->batch, t.end - t.begin);
        for (int64_t i = 0; i * j->part < tiles; i++)
            sum += load(m.bias + (i * j->width + k) * B);
    }
    memcpy(j->dbias + (o->k + k) * B, &sum, sizeof(float) * (size_t)lanes_of(j->filters, o->k + k));
}

/* Adds the other shares' products to those of the first. */
static void add_shares(const meg_winograd *j, int64_t point)
{
    int64_t floats = meg_winograd_products(j, B), first = point * floats;
    float *to = memory_of(j, 0).s + first;
    for (int64_t share = 1; share < j->shares; share++) {
        const float *from = memory_of(j, share).s + first;
        for (int64_t i = 0; i < j->from * B * j->width * B; i += B)
            store(to + i, load(to + i) + load(from + i));
    }
}

static void finish(const meg_winograd *j, const turn *o)
{
    memory m = memory_of(j, 0);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < o->width * (j->from + 1); i++)
        if (i < o->width * j->from) transform_back(j, &m, o, i % j->from, i / j->from);
        else if (j->dbias) sum_bias(j, o, i - o->width * j->from);
}

/* ---- the loops ---- */

static void wait_for_team(const turn *o)
{
    if (o->team == 1) return;
#pragma omp barrier
}

/* Who does what is fixed: the same thread adds to the same sums, batch after batch. */
static void one_batch(const meg_winograd *j, const memory *m, const turn *o)
{
    int64_t parts = (o->tiles + j->part - 1) / j->part;
    bool kept = o->k > 0 && o->tiles == o->end - o->begin; /* v, made for the first width */
    int64_t inputs = kept ? 0 : parts * j->from, panels = (o->width + PANEL - 1) / PANEL;
    for (int64_t i = o->me; i < inputs + parts * o->width; i += o->team)
        if (i < inputs) transform_inputs(j, m->v, o, i / j->from, i % j->from);
        else transform_gradients(j, m, o, (i - inputs) / o->width, (i - inputs) % o->width);
    wait_for_team(o);
    for (int64_t i = POINTS * panels * o->me / o->team; i < POINTS * panels * (o->me + 1) / o->team;
         i++)
        multiply_panel(j, m, o, i / panels, i % panels);
    wait_for_team(o);
}

static void all_batches(const meg_winograd *j, const memory *m, turn o)
{
    for (o.first = o.begin; o.first < o.end; o.first += j->batch) {
        o.tiles = least(j->batch, o.end - o.first);
        one_batch(j, m, &o);
    }
}

static void together(const meg_winograd *j)
{
    memory m = memory_of(j, 0);
    for (int64_t k = 0; k < j->to; k += j->width) {
        turn o = turn_of(j, 0);
        o.k = k, o.width = least(j->width, j->to - k);
        o.me = omp_get_thread_num(), o.team = omp_get_num_threads();
        all_batches(j, &m, o);
        finish(j, &o);
    }
}

static void each_alone(const meg_winograd *j)
{
#pragma omp for schedule(static, 1)
    for (int64_t share = 0; share < j->shares; share++) {
        memory m = memory_of(j, share);
        all_batches(j, &m, turn_of(j, share));
    }
#pragma omp for schedule(static)
    for (int64_t point = 0; point < POINTS; point++)
        add_shares(j, point);
    turn all = turn_of(j, 0);
    finish(j, &all);
}

void MEG_SIMD(winograd_weight)(const meg_winograd *j)
{
#pragma omp parallel num_threads(j->threads)
    {
        if (j->shares > 1) each_alone(j);
        else together(j);
    }
}
