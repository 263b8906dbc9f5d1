/* Parts of tensors: kernels that go row by row take operands with halos.
 *
 *     box of the operand      part          rows of the part that lie side by side are one row:
 *     . . . . . .                           here the three rows of y, if x's box is no wider
 *     . o o o o .             o o o o       than the part, too
 *     . o o o o .             o o o o
 *
 * Channels are never cut: an operand has just those of the part.
 */
#ifndef MEG_DEVICE_CPU_COMMON_ROWS_H
#define MEG_DEVICE_CPU_COMMON_ROWS_H

#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"

/* Whether the pass uses an operand that there is. */
bool meg_cpu_uses(const meg_request *r, int operand);

/* Whether an operand, if it is used, holds the part and has no other channels. */
bool meg_cpu_holds(const meg_request *r, int operand, const meg_box *part);

/* Where the part lies in a tensor of this box, blocked by `block` channels (1: plain). */
meg_simd_side meg_cpu_side(const meg_box *box, const meg_box *part, int block);

/* The part's rows, as long as all `sides` allow. These are changed accordingly. */
meg_simd_part meg_cpu_part(const meg_box *part, int block, meg_simd_side *const side[], int sides);

/* Zeroes what a tensor has beyond the part; nothing if it is absent (NULL) or has no halo. */
void meg_cpu_clear_halo(float *data, const meg_box *box, const meg_box *part, int block);

#endif
