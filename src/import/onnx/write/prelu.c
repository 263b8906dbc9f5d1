/* prelu as PRelu of ONNX. */
#include "import/onnx/write/writers.h"

/* ONNX spreads the slope over the last axes: a slope per channel is (c, 1, 1). */
static meg_status write_prelu(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *x = &o->graph->value[v->in[0]], *slope = &o->graph->value[v->in[1]];
    int64_t dims[MEG_AXES] = {meg_box_size(&slope->shape), 1, 1, 1, 1};
    (void)m;
    meg_onnx_put_weight(o, v->in[1], *(const bool *)meg_onnx_word(v, "single") ? 1 : x->rank - 1,
                        dims);
    return MEG_OK;
}

const meg_onnx_writer meg_onnx_writes_prelu = {"prelu", "PRelu", write_prelu};
