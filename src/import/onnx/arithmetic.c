/* Trained weights that go through arithmetic before they meet data:
 *
 *     x * a.exp()      x + (a - b)      x * (1 + gain)
 *
 * Numbers computed once would freeze a, or would be trained in its place. Such nodes wait: their output
 * is noted as *arithmetic*, and where it is added to data or multiplied with it, all of it becomes nodes
 * of the graph, of leaves that have the data's axes. The gradient then reaches the weights themselves.
 * Anything else that such an output is used for is refused, by the weight's name.
 */
#include "import/onnx/arithmetic.h"
#include "import/onnx/operators/operators.h"
#include "import/onnx/rows.h"

static const char *const OPS[] = {"Add",  "Sub",     "Mul",  "Div",     "Exp",
                                  "Log",  "Neg",     "Sqrt", "Abs",     "Reciprocal",
                                  "Tanh", "Sigmoid", "Relu", "Softplus"};
enum {
    NODES = 256 /* that wait for one another, of one that does not */
};

static bool is_elementwise(const meg_onnx_node *n)
{
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (meg_bytes_is(n->op, OPS[i])) return true;
    return false;
}

bool meg_onnx_waits(const meg_onnx_build *b, const meg_onnx_node *n)
{
    bool trained = false;
    if (!is_elementwise(n) || n->outputs != 1) return false;
    for (int i = 0; i < n->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (!s || (!s->constant && !s->arithmetic) || s->turned) return false;
        trained = trained || s->arithmetic || meg_onnx_is_weight(s);
    }
    return trained;
}

meg_status meg_onnx_wait(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y) y->arithmetic = n;
    return MEG_OK;
}

bool meg_onnx_has_arithmetic(const meg_onnx_build *b, const meg_onnx_node *n)
{
    for (int i = 0; i < n->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (s && s->arithmetic) return true;
    }
    return false;
}

/* A trained weight that the output is made of. */
static const meg_onnx_symbol *weight_in(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    while (s->arithmetic) { /* some input has one, or is made of one */
        const meg_onnx_symbol *first = meg_onnx_in(b, s->arithmetic, 0);
        bool trained = first->arithmetic || meg_onnx_is_weight(first);
        s = trained ? first : meg_onnx_in(b, s->arithmetic, 1);
    }
    return s;
}

static meg_status refuse(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *made = NULL;
    for (int i = 0; i < n->inputs && !(made && made->arithmetic); i++)
        made = meg_onnx_in(b, n, i);
    return meg_onnx_refuse(b, n,
                           "it reads '%.*s', which nodes compute of '%.*s', a trained weight: such "
                           "numbers can be added to data or multiplied with it",
                           MEG_SPAN_TEXT(made->name), MEG_SPAN_TEXT(weight_in(b, made)->name));
}

/* ---- becoming nodes ---- */

typedef struct growth {
    meg_onnx_build *b;
    int like; /* the data: its axes are those of all leaves */
    int nodes;
} growth;

/* A constant as a value; what it was is put into *old. */
static meg_status become(growth *g, const meg_onnx_node *n, meg_onnx_symbol *s,
                         meg_onnx_symbol *old)
{
    int leaf;
    *old = *s;
    if (!s->constant) return MEG_OK;
    MEG_TRY(g->b->error, meg_onnx_spread(g->b, n, s, g->like, &leaf));
    old->parameter = s->parameter; /* made now, shared from now on */
    s->constant = NULL;
    s->value = leaf;
    s->rank = g->b->graph->value[g->like].rank; /* its box has the data's axes */
    return MEG_OK;
}

/* All that the node's output is made of, then the node itself. */
static meg_status grow(growth *g, const meg_onnx_node *n)
{
    meg_onnx_symbol old[2], *in[2] = {NULL, NULL};
    meg_status status = MEG_OK;
    if (g->nodes++ == NODES)
        return meg_onnx_refuse(g->b, n, "more than %d nodes compute a number of weights", NODES);
    for (int i = 0; status == MEG_OK && i < n->inputs && i < 2; i++) {
        meg_onnx_symbol *s = meg_onnx_in(g->b, n, i);
        if (s == in[0]) continue; /* w * w */
        if (s->arithmetic) status = grow(g, s->arithmetic);
        if (status == MEG_OK) status = become(g, n, s, &old[i]);
        if (status == MEG_OK) in[i] = s;
    }
    if (status == MEG_OK) status = meg_onnx_row_of(n)->read(g->b, n);
    meg_onnx_symbol *y = meg_onnx_symbol_of(g->b, n->out[0]);
    y->rank = g->b->graph->value[g->like].rank;
    for (int i = 0; i < 2; i++) {
        if (!in[i]) continue;
        *in[i] = old[i];
        if (in[i]->arithmetic) in[i]->value = in[i]->front = -1; /* it is inside the output */
    }
    return status;
}

meg_status meg_onnx_read_arithmetic(meg_onnx_build *b, const meg_onnx_node *n)
{
    static const char *const joins[] = {"Add", "Sub", "Mul", "Div"};
    bool joined = false;
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++)
        joined = joined || meg_bytes_is(n->op, joins[i]);
    if (!joined || n->inputs != 2) return refuse(b, n);
    int which = meg_onnx_in(b, n, 0) && meg_onnx_in(b, n, 0)->arithmetic ? 0 : 1, like;
    meg_onnx_symbol *s = meg_onnx_in(b, n, which), *x = meg_onnx_in(b, n, 1 - which);
    if (!x || x->arithmetic || x->constant) return refuse(b, n);
    MEG_TRY(b->error, meg_onnx_data(b, n, 1 - which, &like));
    MEG_TRY(b->error, grow(&(growth){b, like, 0}, s->arithmetic));
    meg_status status = meg_onnx_row_of(n)->read(b, n);
    s->value = s->front = -1; /* other data may have other axes */
    s->rank = 0;
    return status;
}
