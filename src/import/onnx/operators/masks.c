/* Comparisons, and choices by them. Masks are real numbers here, 1 where they hold and else 0:
 *
 *     x > 0                       compare relation=greater value=0
 *     Not m                       compare relation=equal value=0
 *     And, Or, Xor                min, max, compare relation=not_equal
 *     Where(mask, -inf, x)        where value=-inf       masked_fill: x, but -inf where the mask holds
 *     Where(mask, x, y)           where invert=1
 *
 * Masks that are constants are states, which nobody trains.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

/* One number that is not trained: an attribute. */
static bool is_number(const meg_onnx_symbol *s)
{
    return s && s->constant && s->constant->size == 1 && !meg_onnx_is_weight(s);
}

/* Input i beside `other`, as data or as a constant that is spread over it. */
static meg_status beside(meg_onnx_build *b, const meg_onnx_node *n, int i, int other, int *out)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    if (s && s->constant) return meg_onnx_spread(b, n, s, other, out);
    return meg_onnx_data(b, n, i, out);
}

/* ---- comparisons ---- */

static const struct {
    const char *onnx, *relation, *mirrored;
} RELATIONS[] = {
    {"Less", "less", "greater"},    {"LessOrEqual", "less_equal", "greater_equal"},
    {"Greater", "greater", "less"}, {"GreaterOrEqual", "greater_equal", "less_equal"},
    {"Equal", "equal", "equal"},    {"Xor", "not_equal", "not_equal"},
};

static meg_status read_relation(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "compare", .inputs = 2};
    meg_onnx_symbol *s[2] = {meg_onnx_in(b, n, 0), meg_onnx_in(b, n, 1)};
    size_t row = 0;
    while (!meg_bytes_is(n->op, RELATIONS[row].onnx))
        row++;
    int first = s[0] && s[0]->constant ? 1 : 0;
    if (s[0] && s[1] && s[0]->constant && s[1]->constant) /* of weights: a mask is none */
        return meg_onnx_fold_weight(b, n);
    MEG_TRY(b->error, meg_onnx_data(b, n, first, &l.in[0]));
    if (is_number(s[1 - first])) {
        double number;
        MEG_TRY(b->error, meg_onnx_scalar(b, n, 1 - first, 0, &number));
        meg_onnx_attr(&l, "value=%.17g ", number);
        l.inputs = 1;
    } else {
        MEG_TRY(b->error, beside(b, n, 1 - first, l.in[0], &l.in[1]));
        MEG_TRY(b->error, meg_onnx_line_up(b, n, 0, 1));
        int wide = l.in[0];
        meg_onnx_widest_first(b, l.in);
        if (l.in[0] != wide) first = 1 - first;
    }
    meg_onnx_attr(&l, "relation=%s", first ? RELATIONS[row].mirrored : RELATIONS[row].relation);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_not(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "compare"};
    meg_onnx_attr(&l, "relation=equal value=0");
    return meg_onnx_point(b, n, &l);
}

static meg_status both(meg_onnx_build *b, const meg_onnx_node *n, const char *op)
{
    meg_onnx_layer l = {.op = op, .inputs = 2};
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int first = s && s->constant ? 1 : 0;
    MEG_TRY(b->error, meg_onnx_data(b, n, first, &l.in[0]));
    MEG_TRY(b->error, beside(b, n, 1 - first, l.in[0], &l.in[1]));
    MEG_TRY(b->error, meg_onnx_line_up(b, n, 0, 1));
    meg_onnx_widest_first(b, l.in);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_and(meg_onnx_build *b, const meg_onnx_node *n)
{
    return both(b, n, "min");
}

static meg_status read_or(meg_onnx_build *b, const meg_onnx_node *n)
{
    return both(b, n, "max");
}

meg_status meg_onnx_mask_of(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "compare"};
    meg_onnx_attr(&l, "relation=not_equal value=0");
    return meg_onnx_point(b, n, &l);
}

/* ---- where ---- */

enum {
    MASK,
    THEN,
    ELSE
};

static bool is_data(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    return s && !s->constant;
}

/* Puts input i of Where over x wherever the mask says so. */
static meg_status add_choice(meg_onnx_build *b, const meg_onnx_node *n, int x, int i,
                             meg_onnx_layer *l)
{
    *l = (meg_onnx_layer){.op = "where", .inputs = 2, .in = {x}};
    MEG_TRY(b->error, beside(b, n, MASK, x, &l->in[1]));
    if (is_number(meg_onnx_in(b, n, i))) {
        double number;
        MEG_TRY(b->error, meg_onnx_scalar(b, n, i, 0, &number));
        meg_onnx_attr(l, "value=%.17g ", number);
    } else {
        MEG_TRY(b->error, beside(b, n, i, x, &l->in[2]));
        l->inputs = 3;
    }
    meg_onnx_attr(l, "invert=%d", i == ELSE);
    return MEG_OK;
}

/* Both are constants: they are put, one after the other, over the mask itself. */
static meg_status choose_constants(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l;
    int x;
    MEG_TRY(b->error, meg_onnx_data(b, n, MASK, &x));
    MEG_TRY(b->error, add_choice(b, n, x, THEN, &l));
    x = meg_graph_add(b->graph, l.op, meg_onnx_fresh(b, l.op), l.attrs, l.inputs, l.in);
    if (x < 0) return b->graph->error.status;
    MEG_TRY(b->error, add_choice(b, n, x, ELSE, &l));
    return meg_onnx_add(b, n, &l);
}

static meg_status read_where(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l;
    int x = -1, other = ELSE;
    if (!is_data(b, n, THEN) && !is_data(b, n, ELSE)) return choose_constants(b, n);
    for (int i = THEN; i <= ELSE; i++) { /* x is the wider one of both */
        int value;
        if (!is_data(b, n, i)) continue;
        MEG_TRY(b->error, meg_onnx_data(b, n, i, &value));
        if (x >= 0) MEG_TRY(b->error, meg_onnx_line_up(b, n, THEN, ELSE));
        if (x >= 0 &&
            meg_box_size(&b->graph->value[x].shape) >= meg_box_size(&b->graph->value[value].shape))
            continue;
        x = value;
        other = i == THEN ? ELSE : THEN;
    }
    if (is_data(b, n, MASK))
        MEG_TRY(b->error, meg_onnx_line_up(b, n, MASK, other == THEN ? ELSE : THEN));
    MEG_TRY(b->error, add_choice(b, n, x, other, &l));
    return meg_onnx_add(b, n, &l);
}

const meg_onnx_row meg_onnx_masks[] = {{"Less", "", 2, 2, read_relation},
                                       {"LessOrEqual", "", 2, 2, read_relation},
                                       {"Greater", "", 2, 2, read_relation},
                                       {"GreaterOrEqual", "", 2, 2, read_relation},
                                       {"Equal", "", 2, 2, read_relation},
                                       {"Xor", "", 2, 2, read_relation},
                                       {"And", "", 2, 2, read_and},
                                       {"Or", "", 2, 2, read_or},
                                       {"Not", "", 1, 1, read_not},
                                       {"Where", "", 3, 3, read_where},
                                       {0}};
