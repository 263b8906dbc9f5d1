/* Groups of nodes that are one operator here. Before set 20 there was no Gelu; exporters wrote
 *
 *     x -> Div sqrt(2) -> Erf -> Add 1 -> Mul x -> Mul 1/2
 *
 * The last node of the group becomes the operator, the others are skipped.
 */
#include "import/onnx/operators/operators.h"

#include <math.h>

static const meg_onnx_node *maker_of(const meg_onnx_build *b, meg_bytes name)
{
    const meg_onnx_symbol *s = meg_onnx_symbol_of(b, name);
    return s && s->maker >= 0 && s->uses == 1 ? &b->file->node[s->maker] : NULL;
}

/* One of two inputs is this number: then the other's name. Constants may still be nodes. */
static bool beside_number(meg_onnx_build *b, const meg_onnx_node *n, const char *op, double number,
                          meg_bytes *other)
{
    if (!n || !meg_bytes_is(n->op, op) || n->inputs != 2) return false;
    for (int i = 0; i < 2; i++) {
        const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->in[i]);
        const meg_onnx_node *maker = s && s->maker >= 0 ? &b->file->node[s->maker] : NULL;
        meg_onnx_tensor t = {.size = 0};
        meg_error unread = {0};
        if (s && s->constant) t = *s->constant;
        if (maker && meg_bytes_is(maker->op, "Constant") && meg_onnx_has(maker, "value"))
            meg_onnx_value(b->file, &unread, maker, &t);
        if (t.size == 1 && fabs(meg_onnx_number(&t, 0) - number) < 1e-5) {
            *other = n->in[1 - i];
            return true;
        }
    }
    return false;
}

static bool multiplies(const meg_onnx_node *n, meg_bytes a, meg_bytes c)
{
    return n && meg_bytes_is(n->op, "Mul") && n->inputs == 2 &&
           ((meg_bytes_equal(n->in[0], a) && meg_bytes_equal(n->in[1], c)) ||
            (meg_bytes_equal(n->in[0], c) && meg_bytes_equal(n->in[1], a)));
}

static void skip(meg_onnx_build *b, const meg_onnx_node *n)
{
    b->skip[n - b->file->node] = true;
}

static void find_gelu(meg_onnx_build *b, const meg_onnx_node *erf)
{
    static const char name[] = "Gelu";
    meg_bytes x, unused;
    const meg_onnx_node *scale = erf->inputs == 1 ? maker_of(b, erf->in[0]) : NULL;
    bool scaled = beside_number(b, scale, "Div", sqrt(2), &x) ||
                  beside_number(b, scale, "Mul", sqrt(0.5), &x);
    const meg_onnx_node *one = scaled ? meg_onnx_after(b, erf) : NULL;
    if (!one || !beside_number(b, one, "Add", 1, &unused)) return;
    const meg_onnx_node *product = meg_onnx_after(b, one);
    if (!product || !multiplies(product, one->out[0], x)) return;
    const meg_onnx_node *half = meg_onnx_after(b, product);
    if (!half || !beside_number(b, half, "Mul", 0.5, &unused)) return;
    skip(b, scale), skip(b, erf), skip(b, one), skip(b, product);
    meg_onnx_node *gelu = &b->file->node[half - b->file->node];
    gelu->in[0] = x;
    gelu->inputs = 1;
    gelu->op = (meg_bytes){(const uint8_t *)name, (const uint8_t *)name + sizeof name - 1};
}

void meg_onnx_find_patterns(meg_onnx_build *b)
{
    for (size_t i = 0; i < b->file->nodes; i++) {
        const meg_onnx_node *n = &b->file->node[i];
        if (!b->skip[i] && meg_bytes_is(n->op, "Erf") && n->outputs == 1) find_gelu(b, n);
    }
}
