/* The weight gradient of a convolution between blocked tensors, of any window in 1 to 3 dimensions:
 * oneDNN has none for volumes with AVX2.
 *
 *     dw[k][c][tap] = sum over output pixels p of dy[k][p] * x[c][p * stride - before + tap]
 *
 * For one tap that is a matrix product, pixels being what is summed over. The innermost loop keeps
 * ROWS channels x up to 3 blocks of filters in registers while it runs along the lines of a *strip*:
 * some neighbouring lines of the output, as many as make it worth loading and storing the sums.
 *
 *     for each share of the lines           summed apart, added in order at the end
 *         for each panel of filters, group of channels       one piece of work
 *             for each strip, block of channels, tap, ROWS channels
 *                 dw += dy x
 *
 * What a tap reads outside of x is left out, not multiplied by zero.
 */
#include "device/cpu/simd/conv/direct.h"
#include "device/cpu/simd/vec.h"

enum {
    ROWS = B / 2,
    PANEL = MEG_DIRECT_PANEL,
    STRIP = 128 /* pixels */
};

typedef struct shape { /* what is worked out once */
    int64_t from, to, group, groups, panels, shares;
    int64_t taps, weights, lines;
} shape;

static shape shape_of(const meg_direct *j)
{
    shape s = {.from = (j->channels + B - 1) / B, .to = (j->filters + B - 1) / B};
    s.group = meg_direct_group(j, B);
    s.groups = (s.from + s.group - 1) / s.group;
    s.panels = (s.to + PANEL - 1) / PANEL;
    s.shares = meg_direct_shares(j, B);
    s.taps = j->taps[0] * j->taps[1] * j->taps[2];
    s.weights = meg_direct_weights(j, B);
    s.lines = meg_direct_lines(j);
    return s;
}

static float *sums_of(const meg_direct *j, const shape *s, int64_t share)
{
    return share == 0 ? j->dweight : j->scratch + (share - 1) * s->weights;
}

static float *bias_of(const meg_direct *j, const shape *s, int64_t share)
{
    return j->scratch + (s->shares - 1) * s->weights + share * s->to * B;
}

/* ---- the innermost loop ---- */

typedef struct product {
    float *dw;          /* (vectors, rows, B), the vectors dw_apart floats apart */
    const float *x, *z; /* first pixel of the first line; vectors of z are z_apart apart */
    int64_t lines, pixels;
    int64_t x_line, x_pixel, z_line; /* floats to the next */
    int64_t dw_apart, z_apart;
} product;

/* `rows` and `vectors` are constants. */
MEG_INLINE void add_lines(const product *p, const int rows, const int vectors)
{
    vec sum[B][PANEL];
    int64_t x_pixel = p->x_pixel, apart = p->z_apart;
#pragma GCC unroll 16
    for (int c = 0; c < rows; c++)
        for (int k = 0; k < vectors; k++)
            sum[c][k] = load(p->dw + k * p->dw_apart + c * B);
    for (int64_t line = 0; line < p->lines; line++) {
        const float *restrict x = p->x + line * p->x_line, *restrict z = p->z + line * p->z_line;
        for (int64_t i = 0; i < p->pixels; i++, x += x_pixel, z += B) {
            vec g[PANEL];
            for (int k = 0; k < vectors; k++)
                g[k] = load(z + k * apart);
#pragma GCC unroll 16
            for (int c = 0; c < rows; c++)
                for (int k = 0; k < vectors; k++)
                    sum[c][k] += splat(x[c]) * g[k];
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < rows; c++)
        for (int k = 0; k < vectors; k++)
            store(p->dw + k * p->dw_apart + c * B, sum[c][k]);
}

/* One instance per size: only constant ones stay in registers. A single vector of filters takes all
 * channels at once: fewer sums would wait for one another. */
static void add_channels(product p, int64_t vectors, int lanes)
{
    int step = vectors == 1 ? B : ROWS;
    for (int c = 0; c < lanes; c += step, p.dw += step * B, p.x += step)
        switch (vectors) {
        case 1:
            add_lines(&p, B, 1);
            break;
        case 2:
            add_lines(&p, ROWS, 2);
            break;
        default:
            add_lines(&p, ROWS, 3);
            break;
        }
}

/* ---- strips ---- */

typedef struct strip { /* lines of the output, in one plane */
    int64_t n, d, h, lines;
} strip;

static strip strip_at(const meg_direct *j, int64_t line, int64_t end)
{
    int64_t plane = line / j->out[1], h = line % j->out[1];
    int64_t lines = STRIP / j->out[2] > 1 ? STRIP / j->out[2] : 1;
    return (strip){plane / j->out[0], plane % j->out[0], h,
                   least(lines, least(end - line, j->out[1] - h))};
}

typedef struct range {
    int64_t lo, hi;
} range;

/* The outputs of r along an axis whose tap lies inside the input. */
static range inside(const meg_direct *j, int axis, int64_t tap, range r)
{
    int64_t stride = j->stride[axis], at = tap * j->dilation[axis] - j->before[axis];
    int64_t lo = at < 0 ? (-at + stride - 1) / stride : 0;
    int64_t hi = at < j->in[axis] ? (j->in[axis] - at + stride - 1) / stride : 0;
    return (range){r.lo > lo ? r.lo : lo, least(r.hi, hi)};
}

typedef struct piece { /* of the work */
    int64_t share, k, vectors;
    int64_t c, end; /* blocks of channels */
    float *sums;
} piece;

static void one_tap(const meg_direct *j, const shape *s, const piece *w, const strip *t, int64_t c,
                    const int64_t tap[3])
{
    range d = inside(j, 0, tap[0], (range){t->d, t->d + 1});
    range h = inside(j, 1, tap[1], (range){t->h, t->h + t->lines});
    range x = inside(j, 2, tap[2], (range){0, j->out[2]});
    if (d.lo >= d.hi || h.lo >= h.hi || x.lo >= x.hi) return;
    int64_t at[3], first[] = {d.lo, h.lo, x.lo};
    for (int i = 0; i < 3; i++)
        at[i] = first[i] * j->stride[i] - j->before[i] + tap[i] * j->dilation[i];
    int64_t volume = j->out[0] * j->out[1] * j->out[2];
    int64_t pixel = ((t->n * s->from + c) * j->in[0] + at[0]) * j->in[1] + at[1];
    int64_t number = (tap[0] * j->taps[1] + tap[1]) * j->taps[2] + tap[2];
    product p = {.lines = h.hi - h.lo, .pixels = x.hi - x.lo};
    p.x = j->x + (pixel * j->in[2] + at[2]) * B;
    p.x_line = j->stride[1] * j->in[2] * B;
    p.x_pixel = j->stride[2] * B;
    p.z = j->dy + (t->n * s->to + w->k) * volume * B +
          ((t->d * j->out[1] + h.lo) * j->out[2] + x.lo) * B;
    p.z_line = j->out[2] * B;
    p.z_apart = volume * B;
    p.dw_apart = s->from * s->taps * B * B;
    p.dw = w->sums + ((w->k * s->from + c) * s->taps + number) * B * B;
    add_channels(p, w->vectors, lanes_of(j->channels, c));
}

static void one_strip(const meg_direct *j, const shape *s, const piece *w, const strip *t)
{
    for (int64_t c = w->c; c < w->end; c++)
        for (int64_t i = 0; i < s->taps; i++) {
            int64_t hw = j->taps[1] * j->taps[2];
            int64_t tap[] = {i / hw, i / j->taps[2] % j->taps[1], i % j->taps[2]};
            one_tap(j, s, w, t, c, tap);
        }
}

/* Block k of filters: the strip's gradients, summed into `bias`. */
static void add_bias(const meg_direct *j, const shape *s, const strip *t, int64_t k, float *bias)
{
    int64_t plane = ((t->n * s->to + k) * j->out[0] + t->d) * j->out[1] + t->h;
    const float *z = j->dy + plane * j->out[2] * B;
    vec sum[4] = {{0}};
    int64_t i = 0, pixels = t->lines * j->out[2];
    for (; i + 4 <= pixels; i += 4)
        for (int a = 0; a < 4; a++)
            sum[a] += load(z + (i + a) * B);
    for (; i < pixels; i++)
        sum[0] += load(z + i * B);
    store(bias, load(bias) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
}

/* ---- pieces ---- */

/* Panels of equal size, up to one block. */
static piece piece_at(const meg_direct *j, const shape *s, int64_t i)
{
    int64_t panel = i / s->groups % s->panels, k = s->to * panel / s->panels;
    piece w = {.share = i / s->groups / s->panels, .k = k, .c = i % s->groups * s->group};
    w.end = least(w.c + s->group, s->from);
    w.vectors = s->to * (panel + 1) / s->panels - k;
    w.sums = sums_of(j, s, w.share);
    return w;
}

static void one_piece(const meg_direct *j, const shape *s, const piece *w)
{
    int64_t line = s->lines * w->share / s->shares, end = s->lines * (w->share + 1) / s->shares;
    float *bias = bias_of(j, s, w->share);
    for (int64_t k = w->k; k < w->k + w->vectors; k++) {
        int64_t floats = s->taps * B * B;
        memset(w->sums + (k * s->from + w->c) * floats, 0,
               sizeof(float) * (size_t)((w->end - w->c) * floats));
        if (w->c == 0) store(bias + k * B, splat(0));
    }
    while (line < end) {
        strip t = strip_at(j, line, end);
        for (int64_t k = w->k; j->dbias && w->c == 0 && k < w->k + w->vectors; k++)
            add_bias(j, s, &t, k, bias + k * B);
        one_strip(j, s, w, &t);
        line += t.lines;
    }
}

/* ---- the end ---- */

static void add_shares(const meg_direct *j, const shape *s, int64_t i)
{
    vec sum = load(j->dweight + i);
    for (int64_t share = 1; share < s->shares; share++)
        sum += load(sums_of(j, s, share) + i);
    store(j->dweight + i, sum);
}

static void finish_bias(const meg_direct *j, const shape *s)
{
    for (int64_t k = 0; k < s->to; k++) {
        vec sum = splat(0);
        for (int64_t share = 0; share < s->shares; share++)
            sum += load(bias_of(j, s, share) + k * B);
        memcpy(j->dbias + k * B, &sum, sizeof(float) * (size_t)lanes_of(j->filters, k));
    }
}

void MEG_SIMD(direct_weight)(const meg_direct *j)
{
    shape s = shape_of(j);
#pragma omp parallel num_threads(j->threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < s.shares * s.panels * s.groups; i++) {
            piece w = piece_at(j, &s, i);
            one_piece(j, &s, &w);
        }
        if (s.shares > 1) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < s.weights; i += B)
                add_shares(j, &s, i);
        }
    }
    if (j->dbias) finish_bias(j, &s);
}
