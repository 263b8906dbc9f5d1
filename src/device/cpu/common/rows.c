/* Parts of tensors: see cpu_rows.h. */
#include "device/cpu/common/rows.h"

#include <string.h>

bool meg_cpu_uses(const meg_request *r, int operand)
{
    meg_mask used = meg_request_reads(r) | meg_request_writes(r);
    return used & MEG_BIT(operand) && !meg_box_empty(&r->box[operand]);
}

bool meg_cpu_holds(const meg_request *r, int operand, const meg_box *part)
{
    const meg_box *b = &r->box[operand];
    return !meg_cpu_uses(r, operand) ||
           (meg_box_holds(b, part) && b->lo[MEG_C] == part->lo[MEG_C] &&
            b->hi[MEG_C] == part->hi[MEG_C]);
}

meg_simd_side meg_cpu_side(const meg_box *box, const meg_box *part, int block)
{
    meg_simd_side s = {.row = meg_extent(box, MEG_W) * block};
    s.slice = s.row * meg_extent(box, MEG_H);
    s.block = s.slice * meg_extent(box, MEG_D);
    s.sample = s.block * ((meg_extent(box, MEG_C) + block - 1) / block);
    s.first = (part->lo[MEG_N] - box->lo[MEG_N]) * s.sample +
              (part->lo[MEG_D] - box->lo[MEG_D]) * s.slice +
              (part->lo[MEG_H] - box->lo[MEG_H]) * s.row +
              (part->lo[MEG_W] - box->lo[MEG_W]) * block;
    return s;
}

meg_simd_part meg_cpu_part(const meg_box *part, int block, meg_simd_side *const side[], int sides)
{
    meg_simd_part p = {.samples = meg_extent(part, MEG_N),
                       .blocks = (meg_extent(part, MEG_C) + block - 1) / block,
                       .slices = meg_extent(part, MEG_D),
                       .rows = meg_extent(part, MEG_H),
                       .width = meg_extent(part, MEG_W) * block};
    for (int axis = 0; axis < 2; axis++) { /* rows to one, then what were slices */
        bool joined = true;
        for (int i = 0; i < sides; i++)
            joined = joined && side[i]->row == p.width;
        if (!joined && p.rows > 1) break;
        p.width *= p.rows;
        p.rows = p.slices;
        p.slices = 1;
        for (int i = 0; i < sides; i++)
            side[i]->row = side[i]->slice;
    }
    return p;
}

static void clear(float *data, int64_t floats)
{
    if (floats > 0) memset(data, 0, (size_t)floats * sizeof *data);
}

void meg_cpu_clear_halo(float *data, const meg_box *box, const meg_box *part, int block)
{
    if (!data || meg_box_equal(box, part)) return;
    int64_t width = meg_extent(box, MEG_W) * block, height = meg_extent(box, MEG_H);
    int64_t blocks = (meg_extent(box, MEG_C) + block - 1) / block, depth = meg_extent(box, MEG_D);
    int64_t left = (part->lo[MEG_W] - box->lo[MEG_W]) * block;
    int64_t right = (box->hi[MEG_W] - part->hi[MEG_W]) * block;
    int64_t rows = meg_extent(box, MEG_N) * blocks * depth * height;
    for (int64_t i = 0; i < rows; i++) {
        int64_t h = box->lo[MEG_H] + i % height, d = box->lo[MEG_D] + i / height % depth;
        int64_t n = box->lo[MEG_N] + i / (height * depth * blocks);
        bool in = h >= part->lo[MEG_H] && h < part->hi[MEG_H] && d >= part->lo[MEG_D] &&
                  d < part->hi[MEG_D] && n >= part->lo[MEG_N] && n < part->hi[MEG_N];
        float *row = data + i * width;
        if (!in) clear(row, width);
        else clear(row, left), clear(row + width - right, right);
    }
}
