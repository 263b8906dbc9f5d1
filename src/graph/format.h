/* Formats: how a tensor's elements lie in memory. A pure table; devices know what to do with it.
 *
 *     plain   n c d h w, row-major
 *     c8 c16  channels in blocks, the block innermost: n C/8 d h w 8; the last block zero-padded
 *     others  weights as kernels like them, named as oneDNN names them (x for the taps)
 */
#ifndef MEG_GRAPH_FORMAT_H
#define MEG_GRAPH_FORMAT_H

#include "graph/box.h"

typedef enum meg_format {
#define MEG_FORMAT(id, name, block) MEG_FORMAT_##id,
#include "graph/formats.def"
#undef MEG_FORMAT
    MEG_FORMATS
} meg_format;

const char *meg_format_name(meg_format f);

/* Channel block of an activation format: 1, 8, 16; 0 for weight formats. */
int meg_format_block(meg_format f);
meg_format meg_format_blocked(int block); /* 1, 8, 16 -> plain, c8, c16 */

/* Bytes of a box in an activation format (weight formats: the device says). */
int64_t meg_format_bytes(meg_format f, const meg_box *box, meg_dtype type);

#endif
