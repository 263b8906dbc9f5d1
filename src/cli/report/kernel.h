/* Kernels in words and figures: what traces and `bench --kernels` say of them. */
#ifndef MEG_CLI_REPORT_KERNEL_H
#define MEG_CLI_REPORT_KERNEL_H

#include "device/device.h"

const char *meg_kernel_name(const meg_request *r); /* "conv", "copy", "sgd" */
const char *meg_kernel_pass(const meg_request *r); /* "fwd"; "" of what is no pass of a node */

/* Input, weight and output, as far as they are there: "8x64x56x56 * 64x64x3x3 > 8x64x56x56". */
void meg_kernel_shape(const meg_request *r, char *text, size_t size);

/* A table of all kernels that ran between begin and end, by their time. */
typedef struct meg_kernels_seen meg_kernels_seen;
meg_kernels_seen *meg_kernels_begin(meg_device *d);
void meg_kernels_end(meg_kernels_seen *s, int64_t steps, double seconds_per_step, bool json);

#endif
