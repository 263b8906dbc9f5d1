/* The cpu device: oneDNN where it is good, our own vector kernels elsewhere, plain C for the rest.
 *
 *     conv, conv_transpose, dense, reorders of weights   oneDNN  (device/cpu/onednn/conv.c, ...)
 *     conv, 3 x 3 and 3 x 3 x 3, of many channels   our own Winograd (device/cpu/own/winograd.c)
 *     matmul, attention                    oneDNN's sgemm        (device/cpu/onednn/matmul.c, ...)
 *     batchnorm and its phases, pools, joins, copies     our own (device/cpu/own/norm.c, ...)
 *
 * Activations are blocked by channel, 16 with AVX-512 and 8 otherwise, as oneDNN's kernels for the
 * machine like them. Its ISA limit (DNNL_MAX_CPU_ISA) is ours, too, so that both always agree.
 */
#include "device/cpu/common/cpu.h"

#include "device/cpu/common/onednn.h"
#include "device/cpu/simd/simd.h"

#include <stdlib.h>
#include <string.h>

static const meg_cpu_op *const table[] = {
#define MEG_CPU_OP(name) &meg_cpu_##name,
#include "device/cpu/kernels.def"
#undef MEG_CPU_OP
};

enum {
    ENTRIES = sizeof table / sizeof *table
};

/* ---- opening ---- */

static const meg_simd *best_simd(void)
{
#ifdef __x86_64__
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), avx2 = (unsigned)dnnl_cpu_isa_avx2;
    if (meg_onednn_block() == 16 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &meg_simd_avx512;
    if ((isa & avx2) == avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &meg_simd_avx2;
#endif
    return &meg_simd_portable;
}

static void *open_cpu(meg_device *d, meg_error *e)
{
    meg_cpu *cpu = meg_cpu_own(sizeof *cpu);
    cpu->threads = meg_device_threads(d);
    cpu->simd = best_simd();
    cpu->block = cpu->simd->block;
    cpu->winograd = meg_cpu_winograd_use(getenv("MEGALITH_WINOGRAD"));
    cpu->onednn = meg_onednn_open(e, cpu->threads);
    if (cpu->onednn) return cpu;
    free(cpu);
    return NULL;
}

static void close_cpu(void *state)
{
    meg_cpu *cpu = state;
    if (!cpu) return;
    meg_onednn_close(cpu->onednn);
    free(cpu);
}

/* ---- dispatch ---- */

static bool serves(const meg_cpu_op *o, const meg_request *r)
{
    if (o->code != r->code) return false;
    if (r->code == MEG_KERNEL) return !o->op || o->op == r->node->op;
    if (r->code == MEG_COPY) return (o == &meg_cpu_reorder) == (r->node != NULL);
    return true;
}

static bool served(meg_device *d, const meg_request *r, meg_spec *s)
{
    for (int i = 0; i < ENTRIES; i++)
        if (serves(table[i], r) && table[i]->describe(d, r, s)) return true;
    return false;
}

/* Where a kernel does not take operands with halos, it may take them without. */
static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    if (served(d, r, s)) return true;
    meg_request bare = *r;
    meg_mask exact = 0;
    for (int i = 0; i < MEG_OPERANDS; i++) {
        bare.box[i] = meg_request_exact(r, i);
        if (!meg_box_equal(&bare.box[i], &r->box[i])) exact |= MEG_BIT(i);
    }
    if (!exact || !served(d, &bare, s)) return false;
    s->exact = exact;
    return true;
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    if (strcmp(s->impl, "plain") == 0) return false;
    for (int i = 0; i < ENTRIES; i++)
        if (serves(table[i], r) && table[i]->prepare(d, r, s, out)) return true;
    return false;
}

const meg_device_kind meg_device_cpu = {
    .name = "cpu",
    .doc = "oneDNN and own vector kernels, AVX2 or AVX-512 as the machine has it",
    .real = MEG_F32,
    .open = open_cpu,
    .close = close_cpu,
    .describe = describe,
    .prepare = prepare,
};
