/* What a request touches: pure, so that plans ask it, too. */
#include "device/device.h"

static const meg_mask states = MEG_BIT(MEG_AUX) | MEG_BIT(MEG_AUX + 1);

static const struct {
    const char *name;
    meg_mask reads, writes; /* KERNEL: the operator says */
} code_table[MEG_CODES] = {
    [MEG_LOAD] = {"load", 0, MEG_BIT(MEG_Y)},
    [MEG_KERNEL] = {"kernel", 0, 0},
    [MEG_COPY] = {"copy", MEG_BIT(MEG_X), MEG_BIT(MEG_Y)},
    [MEG_ADD] = {"add", MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1), MEG_BIT(MEG_Y)},
    [MEG_ZERO] = {"zero", 0, MEG_BIT(MEG_Y)},
    [MEG_UPDATE] = {"update", MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_X + 2) | states,
                    MEG_BIT(MEG_X) | states},
    [MEG_FREE] = {"free", 0, 0},
    [MEG_SEND] = {"send", MEG_BIT(MEG_X), 0},
    [MEG_RECV] = {"recv", 0, MEG_BIT(MEG_Y)},
    [MEG_REDUCE] = {"reduce", MEG_BIT(MEG_X), MEG_BIT(MEG_Y)},
};

const char *meg_code_name(meg_code c)
{
    return code_table[c].name;
}

meg_mask meg_request_reads(const meg_request *r)
{
    return r->code == MEG_KERNEL ? meg_op_reads(r->node->op, r->pass) : code_table[r->code].reads;
}

meg_mask meg_request_writes(const meg_request *r)
{
    return r->code == MEG_KERNEL ? meg_op_writes(r->node->op, r->pass) : code_table[r->code].writes;
}

meg_box meg_request_exact(const meg_request *r, int operand)
{
    bool x = operand >= MEG_X && operand < MEG_X + MEG_INPUTS;
    bool dx = operand >= MEG_DX && operand < MEG_DX + MEG_INPUTS;
    bool y = operand >= MEG_Y && operand < MEG_Y + MEG_OUTPUTS;
    bool dy = operand >= MEG_DY && operand < MEG_DY + MEG_OUTPUTS;
    if (r->code != MEG_KERNEL || meg_box_empty(&r->box[operand])) return r->box[operand];
    if (x || dx) {
        meg_box need = meg_op_need(r->graph, r->node, operand - (x ? MEG_X : MEG_DX), &r->work);
        return meg_box_empty(&need) ? r->box[operand] : need;
    }
    return y || dy ? r->work.out : r->box[operand];
}

int64_t meg_operand_bytes(const meg_request *r, const meg_spec *s, int operand)
{
    if (r->bytes[operand]) return r->bytes[operand];
    if (s->bytes[operand]) return s->bytes[operand];
    if (meg_format_block(s->format[operand]) == 0) return 0; /* only the device knows */
    return meg_format_bytes(s->format[operand], &r->box[operand], r->dtype[operand]);
}

double meg_request_flops(const meg_request *r)
{
    if (r->code != MEG_KERNEL || !r->node->op->flops) return 0;
    return r->node->op->flops(r->graph, r->node, &r->work, r->pass);
}

double meg_request_traffic(const meg_request *r, const meg_spec *s, meg_mask again)
{
    bool kernel = r->code == MEG_KERNEL;
    meg_mask touched[] = {kernel ? meg_node_reads(r->node, r->pass) : meg_request_reads(r),
                          kernel ? meg_node_writes(r->node, r->pass) : meg_request_writes(r),
                          again};
    double bytes = 0;
    for (size_t way = 0; way < sizeof touched / sizeof *touched; way++)
        for (int i = 0; i < MEG_OPERANDS; i++)
            if (touched[way] & MEG_BIT(i)) bytes += (double)meg_operand_bytes(r, s, i);
    return bytes;
}
