/* Initializers that can have no gradient: what only comparisons, conditions, indices and shapes are made
 * of. nanoGPT's mask, a float buffer of ones below the diagonal that is compared with 0, has no kind in
 * a file of TorchScript and is no parameter all the same.
 */
#include "import/onnx/build/kinds.h"

/* Operators whose outputs do not follow their inputs smoothly. */
static bool is_step(const meg_onnx_node *n)
{
    static const char *const ops[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
                                      "And",   "Or",   "Xor",         "Not",     "Shape",
                                      "Size",  "Sign", "Floor",       "Ceil",    "Round",
                                      "IsNaN", "IsInf"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (meg_bytes_is(n->op, ops[i])) return true;
    int64_t to = meg_bytes_is(n->op, "Cast") ? meg_onnx_int(n, "to", 0) : 0;
    return to == MEG_ONNX_BOOL || to == MEG_ONNX_INT32 || to == MEG_ONNX_INT64;
}

/* Input i only says where: a condition, indices, a new shape. */
static bool only_steers(const meg_onnx_node *n, int i)
{
    static const struct {
        const char *op;
        int first, last;
    } rows[] = {{"Where", 0, 0}, {"Gather", 1, 1},   {"Reshape", 1, 1}, {"Expand", 1, 1},
                {"Slice", 1, 4}, {"CastLike", 1, 1}, {"Trilu", 1, 1}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (meg_bytes_is(n->op, rows[k].op) && i >= rows[k].first && i <= rows[k].last) return true;
    return false;
}

/* A walk from the last node to the first meets what is made before what it is made of. */
void meg_onnx_find_smooth(meg_onnx_build *b)
{
    bool *smooth = meg_pool_alloc(b->file->pool, (size_t)b->symbols + 1);
    for (int i = 0; i < b->symbols; i++)
        smooth[i] = b->symbol[i].output;
    for (int i = (int)b->file->nodes - 1; i >= 0; i--) {
        const meg_onnx_node *n = &b->file->node[i];
        bool passes = false;
        for (int k = 0; k < n->outputs && !is_step(n); k++) {
            const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[k]);
            passes = passes || (s && smooth[s - b->symbol]);
        }
        for (int k = 0; passes && k < n->inputs; k++) {
            const meg_onnx_symbol *s = meg_onnx_in(b, n, k);
            if (s && !only_steers(n, k)) smooth[s - b->symbol] = true;
        }
    }
    for (int i = 0; i < b->symbols; i++) {
        meg_onnx_symbol *s = &b->symbol[i];
        bool unsaid = s->kind == MEG_ONNX_UNSAID || s->guessed;
        if (!s->constant || s->maker >= 0 || !s->needed || smooth[i] || !unsaid) continue;
        s->kind = MEG_ONNX_BUFFER;
        s->guessed = false;
    }
}
