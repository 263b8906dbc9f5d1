/* What nodes and values of the graph are called: as the model's own modules, where the file tells. */
#include "import/onnx/build/build.h"

#include <string.h>

/* torch's name_scopes: "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']": the module is the
 * last but one. */
const char *meg_onnx_torch_scope(const meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_bytes s = meg_onnx_note(n, "pkg.torch.onnx.name_scopes"), last = {NULL, NULL}, found = last;
    while (s.at < s.end) {
        if (*s.at++ != '\'') continue;
        meg_bytes word = {s.at, s.at};
        while (s.at < s.end && *s.at != '\'')
            s.at++;
        word.end = s.at++;
        found = last;
        last = word;
    }
    if (found.at == found.end) return NULL;
    return meg_pool_text(b->graph->pool, "%.*s", MEG_SPAN_TEXT(found));
}

meg_bytes meg_onnx_weight_name(const meg_onnx_symbol *s)
{
    return s->label.at ? s->label : s->name;
}

static const char *weight_scope(const meg_onnx_build *b, const meg_onnx_layer *l)
{
    if (!l->weights) return NULL;
    meg_bytes s = meg_onnx_weight_name(l->weight[0].symbol);
    int length = (int)(s.end - s.at), tail = (int)strlen(".weight");
    if (length <= tail || length > 200 || memcmp(s.end - tail, ".weight", (size_t)tail) != 0)
        return NULL;
    return meg_pool_text(b->graph->pool, "%.*s", length - tail, (const char *)s.at);
}

/* Names that the loss will want for itself, and those of weights yet to come. */
static bool taken(const meg_onnx_build *b, const char *name)
{
    static const char *const reserved[] = {"label", "label_count", "loss", "correct",
                                           "absolute_error"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0) return true;
    meg_bytes s = {(const uint8_t *)name, (const uint8_t *)name + strlen(name)};
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, s);
    return (other && other->constant) || meg_graph_find_value(b->graph, name) >= 0;
}

/* The module's path: what this framework or PyTorch noted, else what the weight is called, else the
 * node, else its output. */
const char *meg_onnx_layer_name(const meg_onnx_build *b, const meg_onnx_node *n,
                                const meg_onnx_layer *l)
{
    meg_pool *pool = b->graph->pool;
    meg_bytes own = meg_onnx_note(n, "megalith.scope");
    const char *name = own.at < own.end ? meg_pool_text(pool, "%.*s", MEG_SPAN_TEXT(own)) : NULL;
    if (!name) name = weight_scope(b, l);
    if (!name) name = meg_onnx_torch_scope(b, n);
    meg_bytes rest = n->name.at < n->name.end ? n->name : n->out[0];
    if (!name) name = meg_pool_text(pool, "%.*s", MEG_SPAN_TEXT(rest));
    const char *unique = name;
    for (int i = 2; taken(b, unique); i++)
        unique = meg_pool_text(pool, "%s_%d", name, i);
    return unique;
}

const char *meg_onnx_fresh(const meg_onnx_build *b, const char *op)
{
    for (int i = b->graph->nodes;; i++) {
        const char *name = meg_pool_text(b->graph->pool, "%s%d", op, i);
        if (!taken(b, name)) return name;
    }
}
