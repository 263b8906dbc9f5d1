/* Reductions of ONNX along axes behind the batch, made of sum, peak and functions (ops/matrix/reduce.c):
 *
 *     ReduceL1, SumSquare, L2    sum |x|, sum x^2, and its root, whose slope at 0 is taken for 0
 *     ReduceLogSum, LogSumExp    log(sum x), log(sum exp(x - peak)) + peak
 *     ReduceMax                  the mean of those that equal the peak: each gets an even share of the
 *                                gradient, as PyTorch's amax has it
 *     ReduceMin                  -max(-x)
 */
#include "import/onnx/operators/operators.h"

typedef struct reduction {
    meg_onnx_build *b;
    const meg_onnx_node *n;
    unsigned gone; /* axes */
    char axes[64]; /* the same, as a word */
} reduction;

static int add(const reduction *r, const char *op, const char *words, int x)
{
    return x < 0 ? x : meg_graph_add(r->b->graph, op, meg_onnx_fresh(r->b, op), words, 1, &x);
}

static int join(const reduction *r, const char *op, const char *words, int x, int y)
{
    if (x < 0 || y < 0) return -1;
    return meg_graph_add(r->b->graph, op, meg_onnx_fresh(r->b, op), words, 2, (int[]){x, y});
}

static int sum(const reduction *r, int x)
{
    return add(r, "sum", r->axes, x);
}

static int sum_of_sizes(const reduction *r, int x)
{
    return sum(r, add(r, "abs", "", x));
}

static int sum_of_squares(const reduction *r, int x)
{
    return sum(r, add(r, "pow", "exponent=2", x));
}

/* Where the sum is 0, the root is taken of 1 and then replaced. */
static int length(const reduction *r, int x)
{
    int s = sum_of_squares(r, x), none = add(r, "compare", "relation=equal value=0", s);
    int root = add(r, "sqrt", "", join(r, "where", "value=1", s, none));
    return join(r, "where", "value=0", root, none);
}

static int log_of_sum(const reduction *r, int x)
{
    return add(r, "log", "", sum(r, x));
}

static int log_of_exponentials(const reduction *r, int x)
{
    int peak = add(r, "peak", r->axes, x);
    int s = sum(r, add(r, "exp", "", join(r, "sub", "", x, peak)));
    return join(r, "add", "", add(r, "log", "", s), peak);
}

static int largest(const reduction *r, int x)
{
    int peak = add(r, "peak", r->axes, x), best = join(r, "compare", "relation=equal", x, peak);
    int those = sum(r, join(r, "where", "value=0 invert=1", x, best));
    return join(r, "div", "", those, sum(r, best));
}

static int smallest(const reduction *r, int x)
{
    return add(r, "neg", "", largest(r, add(r, "neg", "", x)));
}

static const struct {
    const char *op;
    int (*make)(const reduction *r, int x);
} REDUCTIONS[] = {{"ReduceSum", sum},           {"ReduceL1", sum_of_sizes},
                  {"ReduceL2", length},         {"ReduceSumSquare", sum_of_squares},
                  {"ReduceLogSum", log_of_sum}, {"ReduceLogSumExp", log_of_exponentials},
                  {"ReduceMax", largest},       {"ReduceMin", smallest}};

static meg_status find_axes(reduction *r, int rank)
{
    meg_onnx_list axes;
    size_t used = 0;
    MEG_TRY(r->b->error, meg_onnx_list_of(r->b, r->n, "axes", 1, &axes));
    r->gone = axes.count > 0 ? 0 : 1; /* none named: all of them */
    for (int i = 0; i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], rank);
        r->gone |= axis < 0 ? 1u : 1u << axis;
    }
    if (r->gone & 1)
        return meg_onnx_refuse(r->b, r->n, "over the batch, or over axes that do not exist");
    for (int i = 1; i < rank; i++)
        if (r->gone >> i & 1)
            used += (size_t)snprintf(r->axes + used, sizeof r->axes - used, "%s%d",
                                     used ? "x" : "axes=", i);
    return MEG_OK;
}

static meg_status read_reduce(meg_onnx_build *b, const meg_onnx_node *n)
{
    reduction r = {.b = b, .n = n};
    int64_t dims[MEG_AXES];
    int x, rank = 0, which = 0;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    const meg_value v = b->graph->value[x]; /* the array moves */
    bool keep = meg_onnx_int(n, "keepdims", 1) != 0;
    bool nothing = meg_onnx_int(n, "noop_with_empty_axes", 0) != 0;
    meg_onnx_list axes;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    if (nothing && axes.count <= 0) {
        if (!meg_bytes_is(n->op, "ReduceSum"))
            return meg_onnx_refuse(b, n, "noop_with_empty_axes without axes");
        meg_onnx_bind(b, n, 0, x);
        return MEG_OK;
    }
    MEG_TRY(b->error, find_axes(&r, v.rank));
    while (!meg_bytes_is(n->op, REDUCTIONS[which].op))
        which++;
    for (int i = 0; i < v.rank; i++)
        if (keep || !(r.gone >> i & 1)) dims[rank++] = r.gone >> i & 1 ? 1 : v.dims[i];
    if (rank < 2) return meg_onnx_refuse(b, n, "nothing would be left but the batch");
    x = REDUCTIONS[which].make(&r, x);
    if (x >= 0 && !keep) x = meg_onnx_shaped(b, x, rank, dims);
    if (x < 0) return b->graph->error.status;
    meg_onnx_bind(b, n, 0, x);
    return MEG_OK;
}

#define WORDS "axes keepdims noop_with_empty_axes"

const meg_onnx_row meg_onnx_reduces[] = {{"ReduceSum", WORDS, 1, 2, read_reduce},
                                         {"ReduceL1", WORDS, 1, 2, read_reduce},
                                         {"ReduceL2", WORDS, 1, 2, read_reduce},
                                         {"ReduceSumSquare", WORDS, 1, 2, read_reduce},
                                         {"ReduceLogSum", WORDS, 1, 2, read_reduce},
                                         {"ReduceLogSumExp", WORDS, 1, 2, read_reduce},
                                         {"ReduceMax", WORDS, 1, 2, read_reduce},
                                         {"ReduceMin", WORDS, 1, 2, read_reduce},
                                         {0}};
