/* Copies and sums of parts on the cpu device: halos, pieces of messages, channels of a cut layer. Both sides
 * hold a box of the same value, each in a format of its own; what both have goes over, row by row.
 *
 *     rows     formats and channels are alike: a row goes at once
 *     runs     both sides are plain and rows are short (weights): as many neighbours as both sides have
 *     lanes    channels lie elsewhere in their blocks: pixel by pixel, a *piece* of channels that
 *              neither side parts
 *
 *         from   |. . . a a|a a a b b|       pieces of 2, 3, 2 channels, where
 *         to     |a a a a a|b b . . .|       blocks are of 5
 */
#include "device/cpu/common/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct side { /* where the elements of a box lie */
    meg_box box;
    int64_t block;
    int64_t lane;             /* from a channel to the next one of its piece */
    int64_t stride[MEG_AXES]; /* c: of whole blocks */
} side;

typedef struct piece { /* channels that lie side by side on both sides */
    int64_t channel, lanes;
    int64_t behind; /* lanes of the target's block behind them that are to be zero */
} piece;

typedef struct own_part {
    side from, to;
    meg_box part; /* what both have */
    bool add;
    piece *piece;
    int64_t pieces;
    meg_box starts; /* of runs of neighbours that both sides have, in plain formats */
    int64_t run;    /* their length */
    int threads;
    void (*row)(const struct own_part *o, const piece *p, const float *x, float *y);
} own_part;

static side side_of(const meg_box *b, meg_format f)
{
    side s = {.box = *b, .block = meg_format_block(f)};
    s.stride[MEG_W] = s.block;
    s.stride[MEG_H] = s.stride[MEG_W] * meg_extent(b, MEG_W);
    s.stride[MEG_D] = s.stride[MEG_H] * meg_extent(b, MEG_H);
    s.stride[MEG_C] = s.stride[MEG_D] * meg_extent(b, MEG_D);
    s.stride[MEG_N] = s.stride[MEG_C] * ((meg_extent(b, MEG_C) + s.block - 1) / s.block);
    s.lane = s.block > 1 ? 1 : s.stride[MEG_C];
    return s;
}

static int64_t offset_of(const side *s, int64_t n, int64_t c, int64_t d, int64_t h, int64_t w)
{
    c -= s->box.lo[MEG_C];
    return (n - s->box.lo[MEG_N]) * s->stride[MEG_N] + c / s->block * s->stride[MEG_C] +
           c % s->block + (d - s->box.lo[MEG_D]) * s->stride[MEG_D] +
           (h - s->box.lo[MEG_H]) * s->stride[MEG_H] + (w - s->box.lo[MEG_W]) * s->stride[MEG_W];
}

/* ---- one row of a piece ---- */

static void copy_whole(const own_part *o, const piece *p, const float *x, float *y)
{
    (void)p;
    memcpy(y, x, (size_t)(meg_extent(&o->part, MEG_W) * o->from.block) * sizeof *y);
}

static void add_whole(const own_part *o, const piece *p, const float *x, float *y)
{
    (void)p;
    int64_t count = meg_extent(&o->part, MEG_W) * o->from.block;
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

/* Both sides have blocks: a pixel's lanes lie side by side. */
static void copy_lanes(const own_part *o, const piece *p, const float *x, float *y)
{
    int64_t width = meg_extent(&o->part, MEG_W), step = o->from.block;
    size_t bytes = (size_t)p->lanes * sizeof *y;
    for (int64_t i = 0; i < width; i++)
        memcpy(y + i * step, x + i * step, bytes);
}

static void copy_any(const own_part *o, const piece *p, const float *x, float *y)
{
    int64_t width = meg_extent(&o->part, MEG_W), from = o->from.block, to = o->to.block;
    for (int64_t k = 0; k < p->lanes; k++)
        for (int64_t i = 0; i < width; i++)
            y[i * to + k * o->to.lane] = x[i * from + k * o->from.lane];
}

static void add_any(const own_part *o, const piece *p, const float *x, float *y)
{
    int64_t width = meg_extent(&o->part, MEG_W), from = o->from.block, to = o->to.block;
    for (int64_t k = 0; k < p->lanes; k++)
        for (int64_t i = 0; i < width; i++)
            y[i * to + k * o->to.lane] += x[i * from + k * o->from.lane];
}

/* Lanes behind the last channel of a block are zero. */
static void clear_behind(const own_part *o, const piece *p, float *y)
{
    int64_t width = meg_extent(&o->part, MEG_W);
    size_t bytes = (size_t)p->behind * sizeof *y;
    for (int64_t i = 0; i < width; i++)
        memset(y + i * o->to.block + p->lanes, 0, bytes);
}

/* ---- all rows ---- */

static void copy_plane(const own_part *o, const piece *p, const float *x, float *y)
{
    int64_t rows = meg_extent(&o->part, MEG_H);
    for (int64_t h = 0; h < rows; h++) {
        o->row(o, p, x, y);
        if (p->behind) clear_behind(o, p, y);
        x += o->from.stride[MEG_H];
        y += o->to.stride[MEG_H];
    }
}

static void run_part(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own_part *o = k->own;
    const meg_box *b = &o->part;
    const float *x = at[o->add ? MEG_X + 1 : MEG_X];
    float *y = at[MEG_Y];
    int64_t depth = meg_extent(b, MEG_D), planes = meg_extent(b, MEG_N) * o->pieces * depth;
    if (o->add && y != at[MEG_X])
        memcpy(y, at[MEG_X], (size_t)meg_operand_bytes(&k->request, &k->spec, MEG_Y));
    if (meg_box_empty(b)) return;
#pragma omp parallel for schedule(static) num_threads(o->threads) if (planes > 1)
    for (int64_t i = 0; i < planes; i++) {
        const piece *p = &o->piece[i / depth % o->pieces];
        int64_t n = b->lo[MEG_N] + i / (o->pieces * depth), d = b->lo[MEG_D] + i % depth;
        int64_t h = b->lo[MEG_H], w = b->lo[MEG_W];
        copy_plane(o, p, x + offset_of(&o->from, n, p->channel, d, h, w),
                   y + offset_of(&o->to, n, p->channel, d, h, w));
    }
}

static void nth_point(const meg_box *b, int64_t i, int64_t p[MEG_AXES])
{
    for (int a = MEG_AXES - 1; a >= 0; i /= meg_extent(b, a--))
        p[a] = b->lo[a] + i % meg_extent(b, a);
}

/* Plain weights, whose rows are short: by runs that are as long as both sides have them. */
static void run_runs(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    enum {
        PIECE = 1 << 15
    }; /* elements of a thread at once */
    (void)m;
    const own_part *o = k->own;
    const float *from = at[o->add ? MEG_X + 1 : MEG_X];
    float *to = at[MEG_Y];
    int64_t pieces = (o->run + PIECE - 1) / PIECE, count = meg_box_size(&o->starts) * pieces;
    if (o->add && to != at[MEG_X])
        memcpy(to, at[MEG_X], (size_t)meg_operand_bytes(&k->request, &k->spec, MEG_Y));
#pragma omp parallel for schedule(static) num_threads(o->threads) if (count > 1)
    for (int64_t i = 0; i < count; i++) {
        int64_t p[MEG_AXES], first = i % pieces * PIECE, left = o->run - first;
        nth_point(&o->starts, i / pieces, p);
        const float *x = from + meg_box_at(&o->from.box, p) + first;
        float *y = to + meg_box_at(&o->to.box, p) + first;
        if (left > PIECE) left = PIECE;
        if (!o->add) memcpy(y, x, (size_t)left * sizeof *y);
        for (int64_t n = 0; n < left && o->add; n++)
            y[n] += x[n];
    }
}

/* ---- what is to be done ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many channels from c on lie in the same block of a side; plain ones lie alike, however many. */
static int64_t lanes_left(const side *s, int64_t c)
{
    return s->block == 1 ? INT64_MAX : s->block - (c - s->box.lo[MEG_C]) % s->block;
}

/* Formats and channels of both sides are alike. */
static bool whole_rows(const meg_request *r, int x, const meg_format format[MEG_OPERANDS])
{
    const meg_box *from = &r->box[x], *to = &r->box[MEG_Y];
    int64_t block = meg_format_block(format[x]);
    return block == meg_format_block(format[MEG_Y]) &&
           (block == 1 || (from->lo[MEG_C] == to->lo[MEG_C] && from->hi[MEG_C] == to->hi[MEG_C]));
}

static void add_piece(own_part *o, size_t *room, piece one)
{
    o->piece = meg_grow(o->piece, room, (size_t)o->pieces + 1, sizeof *o->piece);
    o->piece[o->pieces++] = one;
}

/* Whole rows: a block of channels at once. */
static void cut_blocks(own_part *o)
{
    size_t room = 0;
    for (int64_t c = o->part.lo[MEG_C]; c < o->part.hi[MEG_C]; c += o->from.block)
        add_piece(o, &room, (piece){c, o->from.block, 0});
}

static void cut_lanes(own_part *o)
{
    size_t room = 0;
    int64_t end = o->part.hi[MEG_C];
    for (int64_t c = o->part.lo[MEG_C]; c < end; c += o->piece[o->pieces - 1].lanes) {
        int64_t lanes = smaller(smaller(lanes_left(&o->from, c), lanes_left(&o->to, c)), end - c);
        bool last = c + lanes == o->to.box.hi[MEG_C] && !o->add && o->to.block > 1;
        add_piece(o, &room, (piece){c, lanes, last ? lanes_left(&o->to, c) - lanes : 0});
    }
}

static void choose_row(own_part *o, bool whole)
{
    bool blocked = o->from.block > 1 && o->from.block == o->to.block;
    if (whole) o->row = o->add ? add_whole : copy_whole;
    else if (o->add) o->row = add_any;
    else o->row = blocked ? copy_lanes : copy_any;
}

static void find_runs(own_part *o)
{
    meg_box starts;
    int64_t run = meg_box_runs(&o->from.box, &o->part, &starts);
    o->run = meg_box_runs(&o->to.box, &o->part, &o->starts);
    if (run >= o->run) return;
    o->run = run;
    o->starts = starts;
}

/* Any two boxes of activations, plain or in blocks. What goes by lanes has a price of its own. */
static bool describe_part(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    bool add = r->code == MEG_ADD;
    int x = add ? MEG_X + 1 : MEG_X;
    if (r->dtype[x] != MEG_F32 || r->dtype[MEG_Y] != MEG_F32) return false;
    if (!meg_format_block(r->format[x]) || !meg_format_block(r->format[MEG_Y])) return false;
    if (meg_box_equal(&r->box[x], &r->box[MEG_Y])) return false; /* others are faster */
    s->format[MEG_X] = r->format[MEG_X];
    s->format[MEG_Y] = r->format[MEG_Y];
    s->format[x] = r->format[x];
    if (add) s->in_place = MEG_BIT(MEG_Y);
    meg_cpu_work(d, r, s, 0);
    if (!whole_rows(r, x, s->format))
        snprintf(s->impl, sizeof s->impl, "lanes:%s", cpu->simd->name);
    return true;
}

static void free_part(void *own)
{
    own_part *o = own;
    free(o->piece);
    free(o);
}

static bool prepare_part(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    meg_spec again;
    if (!describe_part(d, r, &again)) return false;
    own_part *o = meg_cpu_own(sizeof *o);
    o->add = r->code == MEG_ADD;
    int x = o->add ? MEG_X + 1 : MEG_X;
    bool whole = whole_rows(r, x, s->format);
    o->from = side_of(&r->box[x], s->format[x]);
    o->to = side_of(&r->box[MEG_Y], s->format[MEG_Y]);
    o->part = meg_box_meet(r->box[x], r->box[MEG_Y]);
    o->threads = cpu->threads;
    choose_row(o, whole);
    if (!meg_box_empty(&o->part)) (whole ? cut_blocks : cut_lanes)(o);
    out->own = o;
    out->free_own = free_part;
    out->run = run_part;
    if (o->from.block > 1 || o->to.block > 1 || meg_box_empty(&o->part)) return true;
    find_runs(o);
    if (o->run > meg_extent(&o->part, MEG_W)) out->run = run_runs;
    return true;
}

const meg_cpu_op meg_cpu_copy_part = {MEG_COPY, NULL, describe_part, prepare_part};
const meg_cpu_op meg_cpu_add_part = {MEG_ADD, NULL, describe_part, prepare_part};
