/* The registry of the zoo, and what its builders share: see zoo.h. */
#include "zoo/zoo.h"

#include "base/nearest.h"
#include "base/registry.h"
#include "graph/op.h"

#include <math.h>
#include <string.h>

#define MEG_MODELS(family) extern const meg_model meg_models_##family[];
#include "zoo/models.def"
#undef MEG_MODELS

static const meg_model *const families[] = {
#define MEG_MODELS(family) meg_models_##family,
#include "zoo/models.def"
#undef MEG_MODELS
};

const meg_model *meg_zoo_at(int i)
{
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (const meg_model *m = families[f]; m->name; m++)
            if (i-- == 0) return m;
    return NULL;
}

MEG_REGISTRY_FIND(meg_model, meg_zoo_find, meg_zoo_at)

MEG_REGISTRY_NAME(meg_zoo_name, meg_zoo_at)

/* Tokens (n, w), for one sample. */
static int add_tokens(meg_graph *g, const char *model, const meg_axes *tokens)
{
    if (tokens->count != 1) {
        meg_fail(&g->error, MEG_EARG, "%s: tokens has %d extents, but wants one (tokens=128)",
                 model, tokens->count);
        return -1;
    }
    return meg_graph_input_typed(g, "tokens", MEG_I32, 2, (int64_t[]){1, tokens->at[0]});
}

/* The input of the graph, for one sample; -1 with the graph's error set if `image` is no image. */
static int add_image(meg_graph *g, const char *model, const meg_axes *image)
{
    if (image->count < 3 || image->count > 4) {
        meg_fail(&g->error, MEG_EARG,
                 "%s: image has %d extent%s, but wants CxHxW (image=3x224x224) or CxDxHxW", model,
                 image->count, image->count == 1 ? "" : "s");
        return -1;
    }
    int64_t dims[MEG_AXES] = {1};
    for (int i = 0; i < image->count; i++)
        dims[i + 1] = image->at[i];
    return meg_graph_input(g, "image", image->count + 1, dims);
}

meg_status meg_zoo_build(meg_error *e, const char *model, const char *options, meg_graph **out)
{
    const meg_model *m = meg_zoo_find(model);
    if (!m) return meg_unknown(e, "unknown model", model, meg_zoo_name);

    meg_graph *g = meg_graph_create(m->name);
    void *settings = meg_pool_alloc(g->pool, m->option_bytes);
    meg_status status = meg_options_parse(e, m->params, m->name, options, settings);
    if (status) goto out;

    const meg_axes *sample = &((meg_zoo_common *)settings)->image;
    int input = (m->tokens ? add_tokens : add_image)(g, m->name, sample);
    int logits = input < 0 ? -1 : m->build(g, m, settings, input);
    if (logits >= 0 && !g->losses) meg_graph_add_loss(g, "softmax_xent", "", logits, 1.0);
    status = g->error.status;
    if (status) {
        *e = g->error;
        goto out;
    }
    if (m->start) m->start(g, settings);
    *out = g;
    return MEG_OK;
out:
    meg_graph_destroy(g);
    return meg_trail(e, status, __func__);
}

static const char *path_of(const meg_module *m, const char *name)
{
    return meg_pool_text(m->graph->pool, "%s%s%s", m->path, m->path[0] ? "." : "", name);
}

int meg_zoo_layer(const meg_module *m, const char *op, const char *name, const char *attrs, int x)
{
    return meg_graph_add(m->graph, op, path_of(m, name), attrs, 1, &x);
}

int meg_zoo_add_conv(const meg_module *m, const char *name, meg_zoo_conv c, int x)
{
    char attrs[96];
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=%d stride=%d pad=%d bias=%d",
             (long long)c.filters, c.kernel, c.stride, c.kernel / 2, c.bias);
    return meg_zoo_layer(m, "conv", name, attrs, x);
}

int meg_zoo_add_dense(const meg_module *m, const char *name, int64_t units, int x)
{
    char attrs[48];
    snprintf(attrs, sizeof attrs, "units=%lld", (long long)units);
    return meg_zoo_layer(m, "dense", name, attrs, x);
}

int meg_zoo_add_dropout(const meg_module *m, const char *name, double rate, int x)
{
    if (rate == 0) return x;
    char attrs[48];
    snprintf(attrs, sizeof attrs, "rate=%.17g", rate);
    return meg_zoo_layer(m, "dropout", name, attrs, x);
}

int meg_zoo_sum(const meg_module *m, const char *name, int a, int b)
{
    return meg_graph_add(m->graph, "add", path_of(m, name), "", 2, (int[]){a, b});
}

int meg_zoo_bn_relu(const meg_module *m, const char *bn, const char *attrs, int x)
{
    char relu[32];
    snprintf(relu, sizeof relu, "relu%s", bn + strlen("bn"));
    x = meg_zoo_layer(m, "batchnorm", bn, attrs, x);
    return meg_zoo_layer(m, "relu", relu, "", x);
}

static double fan_of(const meg_box *weight, meg_fan fan)
{
    int64_t taps = 1;
    for (int axis = MEG_D; axis < MEG_AXES; axis++)
        taps *= meg_extent(weight, axis);
    if (fan == MEG_FAN_ONE) return 1;
    return (double)(taps * meg_extent(weight, fan == MEG_FAN_IN ? MEG_C : MEG_N));
}

void meg_zoo_start_normal(meg_graph *g, const char *op, meg_fan fan, double gain)
{
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        if (strcmp(v->op->name, op)) continue;
        meg_value *weight = &g->value[v->in[1]];
        weight->start = MEG_NORMAL;
        weight->bound = gain / sqrt(fan_of(&weight->shape, fan));
        if (v->inputs > 2) g->value[v->in[2]].start = MEG_ZEROS;
    }
}
