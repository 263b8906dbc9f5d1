/* A convolution with its operands as the cpu device's own kernels have them, beside plain C in
 * double: what the tests of those kernels share.
 */
#ifndef MEG_TESTS_CONV_LAYER_H
#define MEG_TESTS_CONV_LAYER_H

#include "cpu_isas.h"
#include "ops/attrs.h"
#include "plain_op.h"

#include <math.h>

/* Relative by norm, of direct convolutions. Sums of 2592 terms: 4e-7 to 1.5e-6 was seen; of 6783: 2e-6. */
static const double tolerance = 1e-5;

enum {
    GUARD = 64, /* floats */
    RESULTS = 4
};

static const int result[RESULTS] = {MEG_Y, MEG_DX, MEG_DX + 1, MEG_DX + 2};

typedef struct layer {
    meg_device *device;
    int block, threads;
    plain_op op;             /* in double: the reference */
    float *at[MEG_OPERANDS]; /* as the kernels have them */
    int64_t floats[MEG_OPERANDS];
    meg_mask unchecked; /* results that the runner does not make */
    double (*allowed)(const struct layer *l, int result); /* error; NULL: tolerance */
} layer;

static inline bool checked(const layer *l, int i)
{
    return l->at[i] && !(l->unchecked & MEG_BIT(i));
}

/* ---- memory ---- */

static inline bool is_weight(int i)
{
    return i == MEG_X + 1 || i == MEG_DX + 1;
}

static inline bool is_bias(int i)
{
    return i == MEG_X + 2 || i == MEG_DX + 2;
}

static inline int64_t blocks_of(int64_t channels, int block)
{
    return (channels + block - 1) / block;
}

static inline int64_t pixels_of(const meg_box *b)
{
    return meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
}

static inline int64_t floats_of(const layer *l, int i)
{
    const meg_box *b = &l->op.t[i].box;
    int64_t pixels = pixels_of(b), n = meg_extent(b, MEG_N);
    if (is_bias(i)) return meg_extent(b, MEG_C);
    if (is_weight(i)) n = blocks_of(n, l->block) * l->block;
    return n * blocks_of(meg_extent(b, MEG_C), l->block) * l->block * pixels;
}

/* Where element e (plain, row-major) of operand i lies. */
static inline int64_t place_of(const layer *l, int i, int64_t e)
{
    const meg_box *b = &l->op.t[i].box;
    int64_t pixels = pixels_of(b), channels = meg_extent(b, MEG_C);
    int64_t p = e % pixels, c = e / pixels % channels, n = e / pixels / channels;
    if (is_bias(i)) return e;
    if (!is_weight(i)) return place(b, l->block, n, c, p);
    int64_t k = n, blocks = blocks_of(channels, l->block), size = l->block;
    return (((k / size * blocks + c / size) * pixels + p) * size + c % size) * size + k % size;
}

static inline void clear_results(layer *l)
{
    for (int r = 0; r < RESULTS; r++)
        for (int64_t e = 0; l->at[result[r]] && e < l->floats[result[r]] + GUARD; e++)
            l->at[result[r]][e] = NAN;
}

static inline void open_layer(layer *l, const meg_sample *sample)
{
    meg_error e = {0};
    uint64_t seed = 5;
    if (plain_open(&e, "conv", sample, MEG_F64, &l->op) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < MEG_SCRATCH; i++) {
        if (!l->op.t[i].data) continue;
        l->floats[i] = floats_of(l, i);
        size_t room = ((size_t)(l->floats[i] + GUARD) * sizeof(float) + 63) / 64 * 64;
        l->at[i] = aligned_alloc(64, room);
        memset(l->at[i], 0, room);
        if (i >= MEG_Y && i != MEG_DY) continue; /* a result */
        for (int64_t k = 0; k < meg_box_size(&l->op.t[i].box); k++) {
            double value = noise(&seed);
            plain_set(&l->op, i, k, value);
            l->at[i][place_of(l, i, k)] = (float)value;
        }
    }
    plain_run(&l->op, MEG_FORWARD);
    plain_run(&l->op, MEG_BACKWARD);
    plain_run(&l->op, MEG_WEIGHT);
}

static inline void close_layer(layer *l)
{
    for (int i = 0; i < MEG_OPERANDS; i++) {
        free(l->at[i]);
        l->at[i] = NULL;
    }
    plain_close(&l->op);
}

/* ---- comparison ---- */

static inline void check_result(const layer *l, int i, const char *what)
{
    int64_t count = meg_box_size(&l->op.t[i].box);
    double norm = 0, error = 0, inside = 0, all = 0;
    for (int64_t e = 0; e < count; e++) {
        double want = plain_get(&l->op, i, e), got = (double)l->at[i][place_of(l, i, e)];
        norm += want * want;
        error += (got - want) * (got - want);
        inside += fabs(got);
    }
    for (int64_t e = 0; e < l->floats[i]; e++)
        all += fabs((double)l->at[i][e]);
    assert_true(norm > 0);
    double allowed = l->allowed ? l->allowed(l, i) : tolerance;
    if (!(sqrt(error) <= allowed * sqrt(norm)))
        fail_msg("%s, operand %d: relative error %.3g, allowed %.3g", what, i, sqrt(error / norm),
                 allowed);
    if (!(fabs(all - inside) <= 1e-9 * all)) fail_msg("%s, operand %d: padding is not 0", what, i);
    for (int64_t e = l->floats[i]; e < l->floats[i] + GUARD; e++)
        if (!isnan(l->at[i][e])) fail_msg("%s, operand %d: written past its end", what, i);
}

typedef void runner(layer *l);

static inline void check_twice(layer *l, runner *run, const char *what)
{
    float *first[RESULTS] = {NULL};
    for (int turn = 0; turn < 2; turn++) {
        clear_results(l);
        run(l);
        for (int r = 0; r < RESULTS; r++) {
            size_t bytes = sizeof(float) * (size_t)l->floats[result[r]];
            if (!checked(l, result[r])) continue;
            if (turn == 1) {
                assert_memory_equal(first[r], l->at[result[r]], bytes);
                continue;
            }
            check_result(l, result[r], what);
            first[r] = malloc(bytes);
            memcpy(first[r], l->at[result[r]], bytes);
        }
    }
    for (int r = 0; r < RESULTS; r++)
        free(first[r]);
}

/* A request for the whole of it, the weight at home in the format that own kernels like. */
static inline meg_request request(const layer *l, meg_pass pass)
{
    meg_format blocked = meg_format_blocked(l->block);
    meg_request r = {.code = MEG_KERNEL, .graph = l->op.graph, .node = l->op.node, .pass = pass};
    r.work = meg_op_whole(l->op.graph, l->op.node);
    for (int i = 0; i < MEG_SCRATCH; i++)
        r.box[i] = l->op.t[i].box;
    r.format[MEG_X] = r.format[MEG_Y] = r.format[MEG_DY] = blocked;
    r.format[MEG_X + 1] = l->block == 16 ? MEG_FORMAT_OIx16i16o : MEG_FORMAT_OIx8i8o;
    return r;
}

#endif
