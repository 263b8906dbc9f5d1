/* What the kernels of the cpu device share: see cpu.h. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"

#include <stdio.h>

bool meg_cpu_makes(const meg_request *r)
{
    return r->pass == MEG_FORWARD || r->pass == MEG_EVAL || r->pass == MEG_REPLAY;
}

meg_format meg_cpu_common_format(const meg_cpu *cpu, const meg_request *r, int from, int to)
{
    int block = meg_format_block(r->format[from]);
    for (int i = from; i <= to; i++)
        if (r->format[i] != r->format[from]) block = 0;
    return block == 1 || block == cpu->block ? r->format[from] : meg_format_blocked(cpu->block);
}

void *meg_cpu_own(size_t bytes)
{
    size_t none = 0;
    return meg_grow(NULL, &none, bytes, 1);
}

void meg_cpu_work(meg_device *d, const meg_request *r, meg_spec *s, meg_mask again)
{
    const meg_cpu *cpu = meg_device_state(d);
    s->flops = meg_request_flops(r);
    s->traffic = meg_request_traffic(r, s, again);
    snprintf(s->impl, sizeof s->impl, "own:%s", cpu->simd->name);
}
