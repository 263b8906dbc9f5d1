/* A language model as GPT-2 is one: for each token, the logits of the next.
 *
 *     tokens -> wte + wpe -> h.0 -> h.1 -> ... -> ln_f -> the same wte, as a matrix
 *
 *     h.i:   x + attn(ln_1(x)),   then   x + mlp(ln_2(x))
 *
 * The embedding is also the output projection: one parameter with two uses (Press, Wolf, "Using the
 * output embedding to improve language models", EACL 2017). Names are those of GPT-2's released
 * weights; matrices lie as PyTorch's Linear has them, (out, in), and wpe.weight is (1, tokens,
 * width). Dropout is applied to the embeddings and to what joins the residual stream, not to the
 * weights of the attention, which never exist as a matrix.
 *
 * Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are unsupervised multitask
 * learners", 2019.
 */
#include "zoo/sequence.h"

#include <math.h>
#include <string.h>

typedef struct options {
    meg_zoo_common common;
    int64_t layers, heads, width;
    double dropout;
} options;

static const double DEVIATION = 0.02; /* of the weights' first numbers */

static int linear(const meg_module *m, const char *name, int64_t units, int x)
{
    return meg_zoo_linear(m, name, (meg_linear){units, ".weight", ".bias"}, x);
}

static int add_block(const meg_module *m, const options *o, int x)
{
    int y = meg_zoo_layer(m, "layernorm", "ln_1", "", x);
    y = linear(m, "attn.c_attn", 3 * o->width, y);
    y = meg_zoo_attend(m, "attn", (meg_heads){o->heads, true}, y);
    y = linear(m, "attn.c_proj", o->width, y);
    y = meg_zoo_add_dropout(m, "attn.resid_dropout", o->dropout, y);
    x = meg_zoo_sum(m, "attn.add", x, y);

    y = meg_zoo_layer(m, "layernorm", "ln_2", "", x);
    y = linear(m, "mlp.c_fc", 4 * o->width, y);
    y = meg_zoo_layer(m, "gelu", "mlp.gelu", "approximate=tanh", y);
    y = linear(m, "mlp.c_proj", o->width, y);
    y = meg_zoo_add_dropout(m, "mlp.dropout", o->dropout, y);
    return meg_zoo_sum(m, "mlp.add", x, y);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const meg_module top = {g, ""};
    char attrs[96];
    (void)model;
    snprintf(attrs, sizeof attrs, "vocabulary=%lld features=%lld deviation=%g",
             (long long)o->common.classes, (long long)o->width, DEVIATION);
    x = meg_zoo_layer(&top, "embedding", "wte", attrs, x);
    int wpe = meg_zoo_rows(&top, "wpe.weight", o->common.image.at[0], o->width, DEVIATION);
    x = meg_zoo_add_rows(&top, "wpe", wpe, x);
    x = meg_zoo_add_dropout(&top, "drop", o->dropout, x);
    for (int64_t i = 0; i < o->layers; i++) {
        char path[32];
        snprintf(path, sizeof path, "h.%lld", (long long)i);
        x = add_block(&(meg_module){g, path}, o, x);
    }
    x = meg_zoo_layer(&top, "layernorm", "ln_f", "", x);
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=1 bias=0", (long long)o->common.classes);
    return meg_graph_add(g, "conv", "lm_head", attrs, 2,
                         (int[]){x, meg_graph_find_value(g, "wte.weight")});
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* What joins the residual stream starts smaller, the deeper the net: 2 * layers such sums. */
static void start(meg_graph *g, const void *settings)
{
    const options *o = settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_ONE, DEVIATION);
    for (int i = 0; i < g->values; i++)
        if (ends(g->value[i].name, ".c_proj.weight"))
            g->value[i].bound = DEVIATION / sqrt(2 * (double)o->layers);
}

static const meg_param params[] = {
    MEG_ZOO_TOKEN_PARAMS("128", "50257"),
    {"layers", MEG_PARAM_INT, offsetof(options, layers), "12", "blocks", NULL, 1, 1 << 16},
    {"heads", MEG_PARAM_INT, offsetof(options, heads), "12", "of the attention", NULL, 1, 1 << 16},
    {"width", MEG_PARAM_INT, offsetof(options, width), "768", "features of a token", NULL, 1,
     1 << 20},
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0.1", "rate; 0: none", NULL, 0, 0.99},
    {.name = NULL},
};

const meg_model meg_models_gpt[] = {
    {.name = "gpt",
     .doc = "GPT-2, a transformer that predicts the next token",
     .paper = "Radford et al., Language models are unsupervised multitask learners, 2019",
     .params = params,
     .option_bytes = sizeof(options),
     .tokens = true,
     .build = build,
     .start = start},
    {.name = NULL},
};
