/* The parts of the cpu device. Its own kernels are written once over a vector of `block` floats
 * (device/cpu/simd/) and compiled per instruction set; the set is chosen at run time: AVX-512 has blocks
 * of 16 channels, AVX2 and the portable build of 8. oneDNN's kernels use the same blocks.
 */
#ifndef MEG_DEVICE_CPU_COMMON_CPU_H
#define MEG_DEVICE_CPU_COMMON_CPU_H

#include "device/device.h"
#include "ops/ops.h"

enum {
    MEG_CPU_NEVER,
    MEG_CPU_IF_FASTER,
    MEG_CPU_ALWAYS
};

typedef struct meg_cpu {
    int block;                   /* 8 or 16: format c8 or c16 */
    const struct meg_simd *simd; /* our own kernels for this machine */
    struct meg_onednn *onednn;   /* engine and stream (device/cpu/common/onednn.c) */
    int threads;
    int winograd; /* MEG_CPU_NEVER ... */
} meg_cpu;

typedef struct meg_cpu_op { /* kernels of one operator, or of one instruction */
    meg_code code;
    const meg_op *op; /* MEG_KERNEL; NULL: `describe` and `prepare` know which */
    /* Both: false leaves it to the next. `describe` then has not touched the spec; `prepare` is
     * asked even if another has described it. */
    bool (*describe)(meg_device *d, const meg_request *r, meg_spec *s);
    bool (*prepare)(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out);
} meg_cpu_op;

/* oneDNN (device/cpu/common/onednn.c): what cpu.c needs to open and close it. */
struct meg_onednn *meg_onednn_open(meg_error *e, int threads); /* NULL on error, e->status set */
void meg_onednn_close(struct meg_onednn *o);
int meg_onednn_block(void); /* 16 if oneDNN may use AVX-512 here (DNNL_MAX_CPU_ISA), else 8 */
void meg_onednn_version(char *text, size_t size); /* "2.6.3", of the library that runs */

#define MEG_CPU_OP(name) extern const meg_cpu_op meg_cpu_##name;
#include "device/cpu/kernels.def"
#undef MEG_CPU_OP

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

/* Sets impl, flops and traffic of one of our own kernels: the bytes of all its operands, those of
 * `again` twice. */
void meg_cpu_work(meg_device *d, const meg_request *r, meg_spec *s, meg_mask again);

#endif
