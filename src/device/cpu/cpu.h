/* The parts of the cpu device. Its own kernels are written once over a vector of `block` floats
 * (device/cpu/simd/) and compiled per instruction set; the set is chosen at run time: AVX-512 has blocks
 * of 16 channels, AVX2 and the portable build of 8. oneDNN's kernels use the same blocks.
 */
#ifndef MEG_DEVICE_CPU_CPU_H
#define MEG_DEVICE_CPU_CPU_H

#include "device/device.h"

enum {
    MEG_CPU_NEVER,
    MEG_CPU_IF_FASTER,
    MEG_CPU_ALWAYS
};

typedef struct meg_cpu {
    int block;                   /* 8 or 16: format c8 or c16 */
    const struct meg_simd *simd; /* our own kernels for this machine */
    struct meg_onednn *onednn;   /* engine and stream (device/cpu/onednn/onednn.c) */
    int threads;
    int winograd; /* MEG_CPU_NEVER ... */
} meg_cpu;

typedef struct meg_cpu_op { /* kernels of one operator, or of one instruction */
    meg_code code;
    const char *op; /* MEG_KERNEL: its name, or NULL: `describe` and `prepare` know them */
    /* Both: false leaves it to the next. `describe` then has not touched the spec; `prepare` is
     * asked even if another has described it. */
    bool (*describe)(meg_device *d, const meg_request *r, meg_spec *s);
    bool (*prepare)(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out);
} meg_cpu_op;

/* oneDNN (device/cpu/onednn/onednn.c): its kernels, and what cpu.c needs to open and close it. */
struct meg_onednn *meg_onednn_open(meg_error *e, int threads); /* NULL on error, e->status set */
void meg_onednn_close(struct meg_onednn *o);
int meg_onednn_block(void); /* 16 if oneDNN may use AVX-512 here (DNNL_MAX_CPU_ISA), else 8 */
void meg_onednn_version(char *text, size_t size); /* "2.6.3", of the library that runs */
extern const meg_cpu_op meg_cpu_conv, meg_cpu_conv_transpose, meg_cpu_dense;
extern const meg_cpu_op meg_cpu_attention, meg_cpu_matmul;
extern const meg_cpu_op meg_cpu_reorder; /* COPY of a weight: request.node is not NULL */

/* Our own kernels (this folder, over device/cpu/simd). */
extern const meg_cpu_op meg_cpu_add, meg_cpu_avgpool, meg_cpu_batchnorm, meg_cpu_concat;
extern const meg_cpu_op meg_cpu_adaptive_avgpool, meg_cpu_resize;
extern const meg_cpu_op meg_cpu_groupnorm, meg_cpu_instancenorm, meg_cpu_layernorm;
extern const meg_cpu_op meg_cpu_mean, meg_cpu_var, meg_cpu_phase_norm; /* phases of batchnorm */
extern const meg_cpu_op meg_cpu_gap, meg_cpu_maxpool, meg_cpu_relu;
extern const meg_cpu_op meg_cpu_winograd; /* conv; before meg_cpu_conv */
extern const meg_cpu_op meg_cpu_point;    /* all of the table in device/cpu/point.c */
extern const meg_cpu_op meg_cpu_slice, meg_cpu_max_unpool, meg_cpu_prelu, meg_cpu_softmax_xent;
extern const meg_cpu_op meg_cpu_crop;   /* slice; before meg_cpu_slice */
extern const meg_cpu_op meg_cpu_spread; /* add, its second input the same in all samples */
extern const meg_cpu_op meg_cpu_copy;   /* of activations: request.node is NULL */
extern const meg_cpu_op meg_cpu_copy_part, meg_cpu_add_part; /* where two boxes meet */
extern const meg_cpu_op meg_cpu_sum, meg_cpu_update, meg_cpu_zero;

/* How the environment's MEGALITH_WINOGRAD is meant: "0" never, "all" wherever it can, else (NULL,
 * too) where it is faster than oneDNN. For tests and comparisons. */
int meg_cpu_winograd_use(const char *text);

/* FORWARD, EVAL, REPLAY: makes outputs. */
bool meg_cpu_makes(const meg_request *r);

/* The format that the operands from..to share, if element by element kernels work in it; else the
 * device's own. */
meg_format meg_cpu_common_format(const meg_cpu *cpu, const meg_request *r, int from, int to);

/* Zeroed memory for meg_prepared.own, freed by free; never NULL. */
void *meg_cpu_own(size_t bytes);

/* Sets impl and seconds of one of our own kernels: the bytes of all its operands, those of `again`
 * twice, at the memory's bandwidth. */
void meg_cpu_price(meg_device *d, const meg_request *r, meg_spec *s, meg_mask again);

#endif
