/* The kernels of an op file are compiled twice, for float and (with MEG_F64) for double; the
 * descriptor, once, inside `#ifndef MEG_F64`. Sums run in double in both.
 *
 *     static void forward(const meg_call *c) { real *y = c->t[MEG_Y].data; ... }
 *     MEG_KERNELS(relu) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};
 *     #ifndef MEG_F64
 *     const meg_op meg_op_relu = {.name = "relu", ..., MEG_KERNELS_OF(relu)};
 *     #endif
 */
#ifndef MEG_OPS_COMMON_REAL_H
#define MEG_OPS_COMMON_REAL_H

#include "graph/op.h"

#ifdef MEG_F64
typedef double real;
#define MEG_KERNELS(op) const meg_kernels meg_kernels_##op##_f64
#else
typedef float real;
#define MEG_KERNELS(op)                                                                            \
    extern const meg_kernels meg_kernels_##op##_f64;                                               \
    const meg_kernels meg_kernels_##op##_f32
#endif
#define MEG_KERNELS_OF(op) .f32 = &meg_kernels_##op##_f32, .f64 = &meg_kernels_##op##_f64

#endif
