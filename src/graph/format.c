/* Formats: see format.h. */
#include "graph/format.h"

#include <assert.h>

static const struct {
    const char *name;
    int block;
} table[] = {
#define MEG_FORMAT(id, name, block) {name, block},
#include "graph/formats.def"
#undef MEG_FORMAT
};

const char *meg_format_name(meg_format f)
{
    return table[f].name;
}

int meg_format_block(meg_format f)
{
    return table[f].block;
}

meg_format meg_format_blocked(int block)
{
    return block == 16 ? MEG_FORMAT_C16 : block == 8 ? MEG_FORMAT_C8 : MEG_FORMAT_PLAIN;
}

int64_t meg_format_bytes(meg_format f, const meg_box *box, meg_dtype type)
{
    int64_t block = table[f].block;
    assert(block > 0);
    if (meg_box_empty(box)) return 0;
    int64_t channels = (meg_extent(box, MEG_C) + block - 1) / block * block;
    return meg_box_size(box) / meg_extent(box, MEG_C) * channels * meg_dtype_bytes(type);
}
