/* The phases of batch normalisation, each on the part of a value that a rank has: mean, variance
 * around it, and the normalisation with both, forward and backward. What several ranks share of a
 * group is summed by the plan; here a mean is that of the part times its share of the group.
 *
 * An *item* is one channel block of one group. Its samples' rows are cut into *pieces* of at most
 * MEG_SIMD_PART pixels, whatever the number of threads; within a run of RUN vectors sums are floats,
 * across runs and pieces doubles, in fixed order. All phases are one sweep over memory:
 *
 *     mean     sum of x                           dx = share
 *     var      sum of (x - mean)^2                dx = slope (x - mean), sum of (x - mean)
 *     norm     y = (x - mean) scale + bias        dx = scale g, sums of g and of g (x - mean)
 */
#include "device/cpu/simd/moments.h"

#include <math.h>

int64_t MEG_SIMD(phase_bytes)(const meg_simd_phase *j);
void MEG_SIMD(phase_mean)(const meg_simd_phase *j);
void MEG_SIMD(phase_mean_back)(const meg_simd_phase *j);
void MEG_SIMD(phase_var)(const meg_simd_phase *j);
void MEG_SIMD(phase_var_back)(const meg_simd_phase *j);
void MEG_SIMD(phase_apply)(const meg_simd_phase *j);
void MEG_SIMD(phase_back)(const meg_simd_phase *j);

typedef struct constants { /* of an item */
    float mean[B], scale[B], bias[B];
    double inverse[B]; /* 1 / sqrt(variance + epsilon) */
} constants;

typedef struct piece { /* some pixels of rows of one sample */
    int64_t sample, block;
    int64_t row, rows; /* counted through the slices */
    int64_t lo, hi;    /* floats of each row */
} piece;

typedef void sweep(const meg_simd_phase *j, int64_t item, const piece *p, totals *t);

enum {
    RELU = 1,
    SECOND = 2
};

/* ---- geometry ---- */

static int64_t items_of(const meg_simd_phase *j)
{
    return j->groups * j->part.blocks;
}

static int64_t rows_of(const meg_simd_phase *j)
{
    return j->part.slices * j->part.rows;
}

/* How rows make pieces: many of them one, or one several. */
static int64_t rows_each(const meg_simd_phase *j)
{
    int64_t rows = MEG_SIMD_PART * B / j->part.width;
    return rows < 1 ? 1 : rows;
}

static int64_t cuts_of(const meg_simd_phase *j)
{
    return (j->part.width + MEG_SIMD_PART * B - 1) / (MEG_SIMD_PART * B);
}

static int64_t pieces_of(const meg_simd_phase *j) /* of a sample's block */
{
    int64_t each = rows_each(j);
    return (rows_of(j) + each - 1) / each * cuts_of(j);
}

/* The samples of a group that the part has; its first group may have lost some before them. */
static int64_t first_sample(const meg_simd_phase *j, int64_t group)
{
    int64_t at = group * j->norm - j->skipped;
    return at < 0 ? 0 : at;
}

static int64_t last_sample(const meg_simd_phase *j, int64_t group) /* and one */
{
    return least((group + 1) * j->norm - j->skipped, j->part.samples);
}

static piece piece_at(const meg_simd_phase *j, int64_t item, int64_t k)
{
    int64_t pieces = pieces_of(j), cuts = cuts_of(j), each = rows_each(j);
    piece p = {.sample = first_sample(j, item / j->part.blocks) + k / pieces,
               .block = item % j->part.blocks};
    k %= pieces;
    p.row = k / cuts * each;
    p.rows = least(each, rows_of(j) - p.row);
    p.lo = k % cuts * MEG_SIMD_PART * B;
    p.hi = least(p.lo + MEG_SIMD_PART * B, j->part.width);
    return p;
}

MEG_INLINE int64_t place(const meg_simd_phase *j, const meg_simd_side *s, const piece *p,
                         int64_t row)
{
    return s->first + p->sample * s->sample + p->block * s->block + row / j->part.rows * s->slice +
           row % j->part.rows * s->row + p->lo;
}

static constants *constants_of(const meg_simd_phase *j, int64_t item)
{
    return (constants *)j->scratch + item;
}

static totals *totals_of(const meg_simd_phase *j, int64_t item)
{
    totals *all = (totals *)((constants *)j->scratch + items_of(j));
    return all + item * least(j->norm, j->part.samples) * pieces_of(j);
}

int64_t MEG_SIMD(phase_bytes)(const meg_simd_phase *j)
{
    int64_t most = least(j->norm, j->part.samples) * pieces_of(j);
    return items_of(j) * ((int64_t)sizeof(constants) + most * (int64_t)sizeof(totals));
}

/* ---- the walk ---- */

/* Padding lanes get zeros throughout. */
static void set_constants(const meg_simd_phase *j, int64_t item)
{
    constants *k = constants_of(j, item);
    int64_t g = item / j->part.blocks, b = item % j->part.blocks;
    memset(k, 0, sizeof *k);
    for (int l = 0; l < lanes_of(j->channels, b); l++) {
        int64_t c = b * B + l, at = g * j->channels + c;
        if (j->mean) k->mean[l] = j->mean[at];
        if (!j->variance) continue;
        k->inverse[l] = 1 / sqrt((double)j->variance[at] + j->epsilon);
        k->scale[l] = (float)((double)j->weight[c] * k->inverse[l]);
        k->bias[l] = j->bias[c];
    }
}

static int64_t pieces_in(const meg_simd_phase *j, int64_t item)
{
    int64_t g = item / j->part.blocks;
    return (last_sample(j, g) - first_sample(j, g)) * pieces_of(j);
}

static void walk(const meg_simd_phase *j, sweep *over)
{
    int64_t items = items_of(j), most = least(j->norm, j->part.samples) * pieces_of(j);
#pragma omp parallel num_threads(j->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++)
            set_constants(j, i);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < items * most; k++) {
            int64_t item = k / most;
            if (k % most >= pieces_in(j, item)) continue;
            piece p = piece_at(j, item, k % most);
            totals *t = totals_of(j, item) + k % most;
            memset(t, 0, sizeof *t);
            over(j, item, &p, t);
        }
    }
}

/* The sums of an item, in the order of its pieces. */
static totals sum_of(const meg_simd_phase *j, int64_t item)
{
    totals all = {{0}, {0}};
    const totals *t = totals_of(j, item);
    for (int64_t k = 0; k < pieces_in(j, item); k++)
        for (int l = 0; l < B; l++) {
            all.a[l] += t[k].a[l];
            all.b[l] += t[k].b[l];
        }
    return all;
}

MEG_INLINE void add_totals(double to[B], vec sum)
{
    for (int l = 0; l < B; l++)
        to[l] += (double)sum[l];
}

/* ---- mean ---- */

static void sum_mean(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    (void)item;
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        const float *x = j->x + place(j, &j->at_x, p, r);
        int64_t count = (p->hi - p->lo) / B;
        for (int64_t i = 0; i < count; i += RUN)
            add_totals(t->a, run_sum(x + i * B, least(RUN, count - i)));
    }
}

static void sum_var(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    vec mean = load(constants_of(j, item)->mean);
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        const float *x = j->x + place(j, &j->at_x, p, r);
        int64_t count = (p->hi - p->lo) / B;
        for (int64_t i = 0; i < count; i += RUN) {
            vec moment[2];
            run_moments(x + i * B, least(RUN, count - i), mean, moment);
            add_totals(t->a, moment[1]);
        }
    }
}

static void put_moments(const meg_simd_phase *j)
{
    for (int64_t item = 0; item < items_of(j); item++) {
        int64_t g = item / j->part.blocks, b = item % j->part.blocks;
        totals all = sum_of(j, item);
        for (int l = 0; l < lanes_of(j->channels, b); l++)
            j->moment[g * j->channels + b * B + l] = (float)(all.a[l] / j->count[g]);
    }
}

void MEG_SIMD(phase_mean)(const meg_simd_phase *j)
{
    walk(j, sum_mean);
    put_moments(j);
}

void MEG_SIMD(phase_var)(const meg_simd_phase *j)
{
    walk(j, sum_var);
    put_moments(j);
}

/* What every element of an item gets: dmoment, times a factor, over the count. */
static vec share_of(const meg_simd_phase *j, int64_t item, double factor)
{
    int64_t g = item / j->part.blocks, b = item % j->part.blocks;
    vec v = {0};
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        v[l] = (float)(factor * (double)j->dmoment[g * j->channels + b * B + l] / j->count[g]);
    return v;
}

static void fill_mean(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    (void)t;
    vec share = share_of(j, item, 1);
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        float *dx = j->dx + place(j, &j->at_dx, p, r);
        for (int64_t i = 0; i < p->hi - p->lo; i += B)
            store(dx + i, share);
    }
}

void MEG_SIMD(phase_mean_back)(const meg_simd_phase *j)
{
    walk(j, fill_mean);
}

/* ---- variance ---- */

static void pull_var(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    vec mean = load(constants_of(j, item)->mean), slope = share_of(j, item, 2);
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        const float *x = j->x + place(j, &j->at_x, p, r);
        float *dx = j->dx ? j->dx + place(j, &j->at_dx, p, r) : NULL;
        int64_t count = (p->hi - p->lo) / B;
        for (int64_t i = 0; i < count; i += RUN) {
            vec sum = {0};
            for (int64_t k = i; k < least(i + RUN, count); k++) {
                vec d = load(x + k * B) - mean;
                sum += d;
                if (dx) store(dx + k * B, slope * d);
            }
            add_totals(t->a, sum);
        }
    }
}

void MEG_SIMD(phase_var_back)(const meg_simd_phase *j)
{
    walk(j, pull_var);
    for (int64_t item = 0; item < items_of(j) && j->dmean; item++) {
        int64_t g = item / j->part.blocks, b = item % j->part.blocks;
        totals all = sum_of(j, item);
        for (int l = 0; l < lanes_of(j->channels, b); l++) {
            int64_t at = g * j->channels + b * B + l;
            double slope = 2 * (double)j->dmoment[at] / j->count[g];
            j->dmean[at] = (float)(-slope * all.a[l]);
        }
    }
}

/* ---- norm ---- */

/* Forward and backward must agree on the sign of this to the last bit: one expression for both. */
MEG_INLINE vec normalised(vec centred, vec scale, vec bias)
{
    return centred * scale + bias;
}

static void apply(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    (void)t;
    const constants *k = constants_of(j, item);
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    ivec all = (ivec){0} - (j->relu ? 0 : 1); /* not rectified: nothing is below */
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        const float *x = j->x + place(j, &j->at_x, p, r);
        float *y = j->y + place(j, &j->at_y, p, r); /* may be x */
        for (int64_t i = 0; i < p->hi - p->lo; i += B) {
            vec v = normalised(load(x + i) - mean, scale, bias);
            store(y + i, keep(~(v < 0) | all, v));
        }
    }
}

void MEG_SIMD(phase_apply)(const meg_simd_phase *j)
{
    walk(j, apply);
}

MEG_INLINE void back_row(const meg_simd_phase *j, const constants *k, const int64_t at[3],
                         int64_t count, totals *t, int how)
{
    const float *x = j->x + at[0], *dy = j->dy + at[1];
    const float *dy2 = how & SECOND ? j->dy2 + at[1] : NULL;
    float *dx = j->dx ? j->dx + at[2] : NULL; /* may be dy */
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    for (int64_t i = 0; i < count; i += RUN) {
        vec s0 = {0}, p0 = {0}; /* sums of g and of g * (x - mean) */
        for (int64_t v = i * B; v < least(i + RUN, count) * B; v += B) {
            vec d = load(x + v) - mean, g = load(dy + v);
            if (how & SECOND) g += load(dy2 + v);
            if (how & RELU) g = keep(~(normalised(d, scale, bias) <= 0), g);
            s0 += g, p0 += g * d;
            if (dx) store(dx + v, scale * g);
        }
        add_totals(t->a, s0);
        add_totals(t->b, p0);
    }
}

static void pull_norm(const meg_simd_phase *j, int64_t item, const piece *p, totals *t)
{
    const constants *k = constants_of(j, item);
    int how = (j->relu ? RELU : 0) | (j->dy2 ? SECOND : 0);
    int64_t count = (p->hi - p->lo) / B;
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        int64_t at[3] = {place(j, &j->at_x, p, r), place(j, &j->at_dy, p, r),
                         j->dx ? place(j, &j->at_dx, p, r) : 0};
        switch (how) {
        case 0:
            back_row(j, k, at, count, t, 0);
            break;
        case RELU:
            back_row(j, k, at, count, t, RELU);
            break;
        case SECOND:
            back_row(j, k, at, count, t, SECOND);
            break;
        default:
            back_row(j, k, at, count, t, RELU | SECOND);
            break;
        }
    }
}

static void put_gradients(const meg_simd_phase *j, int64_t b)
{
    double dweight[B] = {0}, dbias[B] = {0};
    int lanes = lanes_of(j->channels, b);
    for (int64_t g = 0; g < j->groups; g++) {
        int64_t item = g * j->part.blocks + b, at = g * j->channels + b * B;
        const constants *k = constants_of(j, item);
        totals all = sum_of(j, item);
        for (int l = 0; l < lanes; l++) {
            double dot = all.b[l] * k->inverse[l];
            double scale = (double)j->weight[b * B + l] * k->inverse[l];
            dbias[l] += all.a[l];
            dweight[l] += dot;
            if (j->dmean) j->dmean[at + l] = (float)(-scale * all.a[l]);
            if (j->dvariance) j->dvariance[at + l] = (float)(-scale * k->inverse[l] * dot / 2);
        }
    }
    for (int l = 0; l < lanes; l++) {
        if (j->dweight) j->dweight[b * B + l] = (float)dweight[l];
        if (j->dbias) j->dbias[b * B + l] = (float)dbias[l];
    }
}

void MEG_SIMD(phase_back)(const meg_simd_phase *j)
{
    walk(j, pull_norm);
    for (int64_t b = 0; b < j->part.blocks; b++)
        put_gradients(j, b);
}
