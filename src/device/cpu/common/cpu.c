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

void meg_cpu_price(meg_device *d, const meg_request *r, meg_spec *s, meg_mask again)
{
    const meg_rates *rates = meg_device_rates(d);
    const meg_cpu *cpu = meg_device_state(d);
    meg_mask touched[] = {meg_request_reads(r), meg_request_writes(r), again};
    double bytes = 0;
    for (size_t way = 0; way < sizeof touched / sizeof *touched; way++)
        for (int i = 0; i < MEG_OPERANDS; i++)
            if (touched[way] & MEG_BIT(i)) bytes += (double)meg_operand_bytes(r, s, i);
    s->seconds = rates->launch + bytes / rates->bandwidth;
    snprintf(s->impl, sizeof s->impl, "own:%s", cpu->simd->name);
}
