/* All ONNX operators that can be read: the tables of their readers, one after the other. */
#include "import/onnx/rows.h"
#include "import/onnx/fold/draws.h"
#include "import/onnx/onnx.h"
#include "import/onnx/operators/operators.h"

static const meg_onnx_row *const TABLES[] = {
    meg_onnx_layers,    meg_onnx_products,   meg_onnx_norms,   meg_onnx_points,
    meg_onnx_functions, meg_onnx_masks,      meg_onnx_shapes,  meg_onnx_constants,
    meg_onnx_helpers,   meg_onnx_draws,      meg_onnx_reduces, meg_onnx_blocks,
    meg_onnx_einsums,   meg_onnx_attentions,
#define MEG_ONNX(name) meg_onnx_reads_##name,
#include "import/onnx/operators.def"
#undef MEG_ONNX
};

static const meg_onnx_row *row_at(int i)
{
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const meg_onnx_row *row = TABLES[t]; row->op; row++)
            if (i-- == 0) return row;
    return NULL;
}

const meg_onnx_row *meg_onnx_row_of(const meg_onnx_node *n)
{
    const meg_onnx_row *row = NULL;
    bool standard = meg_bytes_is(n->domain, "") || meg_bytes_is(n->domain, "ai.onnx");
    for (int i = 0; standard && (row = row_at(i)); i++)
        if (meg_bytes_is(n->op, row->op)) break;
    return row;
}

const char *meg_onnx_operator(int i)
{
    const meg_onnx_row *row = row_at(i);
    return row ? row->op : NULL;
}
