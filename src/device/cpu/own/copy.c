/* Copies on the cpu device: activations between plain and blocked, and concat, which gathers the
 * lanes of its inputs: where an input does not begin at a whole block, its lanes shift.
 *
 *     inputs   |a a a a a . . .|   |b b b b b b b b|b b . . . . . .|      5 and 10 channels
 *     output   |a a a a a b b b|b b b b b b b .|
 *
 * A slice of channels is the same with one input, of which not all is taken.
 */
#include "device/cpu/common/rows.h"
#include "ops/attrs.h"

#include <stdlib.h>
#include <string.h>

static int64_t pixels_of(const meg_box *b)
{
    return meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
}

static int64_t blocks_of(const meg_cpu *cpu, int64_t channels)
{
    return (channels + cpu->block - 1) / cpu->block;
}

/* ---- between formats ---- */

typedef struct own_copy {
    meg_simd_copy job;
    void (*kernel)(const meg_simd_copy *j);
} own_copy;

static bool describe_copy(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    meg_format from = r->format[MEG_X], to = r->format[MEG_Y];
    meg_format blocked = meg_format_blocked(cpu->block);
    bool packs = from == MEG_FORMAT_PLAIN && to == blocked;
    bool unpacks = from == blocked && to == MEG_FORMAT_PLAIN;
    if (!packs && !unpacks) return false;
    if (r->dtype[MEG_X] != MEG_F32 || r->dtype[MEG_Y] != MEG_F32) return false;
    if (!meg_box_equal(&r->box[MEG_X], &r->box[MEG_Y])) return false;
    s->format[MEG_X] = from;
    s->format[MEG_Y] = to;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run_copy(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own_copy *o = k->own;
    meg_simd_copy job = o->job;
    job.from = at[MEG_X];
    job.to = at[MEG_Y];
    o->kernel(&job);
}

static bool prepare_copy(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_box *b = &r->box[MEG_X];
    own_copy *o = meg_cpu_own(sizeof *o);
    o->job.samples = meg_extent(b, MEG_N);
    o->job.channels = meg_extent(b, MEG_C);
    o->job.blocks = blocks_of(cpu, o->job.channels);
    o->job.pixels = pixels_of(b);
    o->job.threads = cpu->threads;
    o->kernel = s->format[MEG_X] == MEG_FORMAT_PLAIN ? cpu->simd->pack : cpu->simd->unpack;
    out->own = o;
    out->free_own = free;
    out->run = run_copy;
    return true;
}

const meg_cpu_op meg_cpu_copy = {MEG_COPY, NULL, describe_copy, prepare_copy};

/* ---- concat ---- */

typedef struct own_concat { /* forward: one job; backward: one for each input */
    int jobs, block;
    meg_simd_gather job[MEG_INPUTS];
    meg_box part[MEG_INPUTS]; /* of each target */
    meg_simd_piece *piece;
    int64_t *first;
    size_t pieces, piece_room, firsts, first_room;
    void (*kernel)(const meg_simd_gather *j);
} own_concat;

typedef struct strip { /* consecutive channels that go from one tensor to another */
    int source;
    int64_t from, to, count;
} strip;

/* The part of input i: its own channels. */
static meg_box channels_of(const meg_request *r, int i)
{
    meg_box part = r->work.out;
    part.lo[MEG_C] = 0;
    part.hi[MEG_C] = r->graph->value[r->node->in[i]].shape.hi[MEG_C];
    return part;
}

/* All channels; pixels may have halos. */
static bool fits_concat(const meg_request *r)
{
    bool back = r->pass == MEG_BACKWARD;
    const meg_node *v = r->node;
    if (!back && !meg_cpu_makes(r)) return false;
    const meg_box *shape = &r->graph->value[v->out[0]].shape, *all = &r->work.out;
    if (meg_box_empty(all) || !meg_cpu_holds(r, back ? MEG_DY : MEG_Y, all)) return false;
    if (all->lo[MEG_C] != shape->lo[MEG_C] || all->hi[MEG_C] != shape->hi[MEG_C]) return false;
    for (int i = 0; i < v->inputs; i++) { /* of gradients some may not be wanted */
        meg_box part = channels_of(r, i);
        if (!meg_cpu_holds(r, (back ? MEG_DX : MEG_X) + i, &part)) return false;
    }
    return true;
}

static bool describe_concat(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    meg_format blocked = meg_format_blocked(cpu->block);
    if (!fits_concat(r)) return false;
    s->format[MEG_Y] = s->format[MEG_DY] = blocked;
    for (int i = 0; i < r->node->inputs; i++)
        s->format[MEG_X + i] = s->format[MEG_DX + i] = blocked;
    meg_cpu_work(d, r, s, 0);
    return true;
}

/* Cuts a strip where a block ends, on either side, and appends the pieces in block b of the target. */
static void add_pieces(own_concat *o, const strip *s, int64_t b, int64_t block)
{
    int64_t lo = b * block > s->to ? b * block : s->to;
    int64_t end = s->to + s->count, hi = (b + 1) * block < end ? (b + 1) * block : end;
    while (lo < hi) {
        int64_t c = s->from + lo - s->to, lanes = block - c % block;
        if (lanes > hi - lo) lanes = hi - lo;
        o->piece = meg_grow(o->piece, &o->piece_room, o->pieces + 1, sizeof *o->piece);
        o->piece[o->pieces++] = (meg_simd_piece){
            .source = s->source,
            .block = c / block,
            .lane = (int)(c % block),
            .to = (int)(lo % block),
            .lanes = (int)lanes,
        };
        lo += lanes;
    }
}

/* Lists the pieces of every block of one target. Pointers are set when all lists are complete. */
static void add_target(own_concat *o, const strip *s, int strips, int64_t channels,
                       const meg_cpu *cpu)
{
    meg_simd_gather *job = &o->job[o->jobs++];
    job->part.blocks = blocks_of(cpu, channels);
    for (int64_t b = 0; b <= job->part.blocks; b++) {
        o->first = meg_grow(o->first, &o->first_room, o->firsts + 1, sizeof *o->first);
        o->first[o->firsts++] = (int64_t)o->pieces;
        for (int i = 0; b < job->part.blocks && i < strips; i++)
            add_pieces(o, &s[i], b, cpu->block);
    }
}

static void run_concat(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own_concat *o = k->own;
    const int64_t *first = o->first;
    for (int i = 0; i < o->jobs; i++) {
        bool back = k->request.pass == MEG_BACKWARD;
        meg_simd_gather job = o->job[i];
        job.piece = o->piece;
        job.first = first;
        first += job.part.blocks + 1;
        job.to = at[back ? MEG_DX + i : MEG_Y];
        for (int x = 0; x < (back ? 1 : k->request.node->inputs); x++)
            job.from[x] = at[(back ? MEG_DY : MEG_X) + x];
        if (!job.to) continue;
        o->kernel(&job);
        if (back) meg_cpu_clear_halo(job.to, &k->request.box[MEG_DX + i], &o->part[i], o->block);
    }
}

static void free_concat(void *own)
{
    own_concat *o = own;
    free(o->piece);
    free(o->first);
    free(o);
}

/* Completes the jobs. part[MEG_INPUTS]: of each input's box, what goes to or comes from the sum. */
static void finish(own_concat *o, const meg_request *r, const meg_cpu *cpu, const meg_box part[],
                   meg_prepared *out)
{
    bool back = r->pass == MEG_BACKWARD;
    int x = back ? MEG_DX : MEG_X, y = back ? MEG_DY : MEG_Y, inputs = r->node->inputs;
    o->block = cpu->block;
    for (int i = 0; i < o->jobs; i++) {
        meg_simd_gather *job = &o->job[i];
        meg_simd_side *at[MEG_INPUTS + 1] = {&job->to_at}, sum;
        int64_t blocks = job->part.blocks;
        int sides = 1;
        sum = meg_cpu_side(&r->box[y], &r->work.out, cpu->block);
        job->to_at = back ? meg_cpu_side(&r->box[x + i], &part[i], cpu->block) : sum;
        for (int k = 0; k < (back ? 1 : inputs); k++) {
            job->from_at[k] = back ? sum : meg_cpu_side(&r->box[x + k], &part[k], cpu->block);
            at[sides++] = &job->from_at[k];
        }
        job->part = meg_cpu_part(&r->work.out, cpu->block, at, sides);
        job->part.blocks = blocks;
        job->threads = cpu->threads;
        o->part[i] = part[i];
    }
    o->kernel = cpu->simd->gather;
    out->own = o;
    out->free_own = free_concat;
    out->run = run_concat;
}

static bool prepare_concat(meg_device *d, const meg_request *r, const meg_spec *s,
                           meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    const meg_node *v = r->node;
    bool back = r->pass == MEG_BACKWARD;
    own_concat *o = meg_cpu_own(sizeof *o);
    strip all[MEG_INPUTS] = {{0}};
    meg_box part[MEG_INPUTS];
    int64_t at = 0;
    for (int i = 0; i < v->inputs; i++) {
        int64_t channels = r->graph->value[v->in[i]].shape.hi[MEG_C];
        part[i] = channels_of(r, i);
        all[i] = back ? (strip){0, at, 0, channels} : (strip){i, 0, at, channels};
        at += channels;
        if (back) add_target(o, &all[i], 1, channels, cpu);
    }
    if (!back) add_target(o, all, v->inputs, at, cpu);
    finish(o, r, cpu, part, out);
    return true;
}

const meg_cpu_op meg_cpu_concat = {MEG_KERNEL, &meg_op_concat, describe_concat, prepare_concat};

/* ---- slices of channels ---- */

/* Whole pixels and consecutive channels; in a value that is plain, plain C is as good. */
static bool fits_slice(const meg_cpu *cpu, const meg_request *r)
{
    bool back = r->pass == MEG_BACKWARD;
    int x = back ? MEG_DX : MEG_X, y = back ? MEG_DY : MEG_Y;
    const meg_slice_attr *a = r->node->attr;
    const meg_box *in = &r->graph->value[r->node->in[0]].shape;
    meg_box all = r->graph->value[r->node->out[0]].shape, want = *in;
    if (!back && !meg_cpu_makes(r)) return false;
    if (r->format[back ? MEG_DY : MEG_X] != meg_format_blocked(cpu->block)) return false;
    for (int i = MEG_D; i < MEG_AXES; i++)
        if (all.hi[i] != in->hi[i]) return false;
    if (a->picks.at[MEG_C].step != 1) return false;
    all.lo[MEG_N] = want.lo[MEG_N] = r->work.out.lo[MEG_N];
    all.hi[MEG_N] = want.hi[MEG_N] = r->work.out.hi[MEG_N];
    return meg_box_equal(&r->work.out, &all) && meg_box_equal(&r->box[y], &all) &&
           meg_box_equal(&r->box[x], &want) && !meg_box_empty(&all);
}

static bool describe_slice(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits_slice(cpu, r)) return false;
    s->format[MEG_X] = s->format[MEG_Y] = meg_format_blocked(cpu->block);
    s->format[MEG_DY] = s->format[MEG_DX] = meg_format_blocked(cpu->block);
    meg_cpu_work(d, r, s, 0);
    return true;
}

/* The gradient of what was not taken is zero: lanes that no piece fills. */
static bool prepare_slice(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    const meg_slice_attr *a = r->node->attr;
    bool back = r->pass == MEG_BACKWARD;
    int64_t begin = a->picks.at[MEG_C].begin, channels = a->picks.at[MEG_C].length;
    int64_t taken = meg_extent(&r->work.out, MEG_C);
    meg_box part[] = {channels_of(r, 0)};
    own_concat *o = meg_cpu_own(sizeof *o);
    strip all = back ? (strip){0, 0, begin, taken} : (strip){0, begin, 0, taken};
    add_target(o, &all, 1, back ? channels : taken, cpu);
    finish(o, r, cpu, part, out);
    return true;
}

const meg_cpu_op meg_cpu_slice = {MEG_KERNEL, &meg_op_slice, describe_slice, prepare_slice};
