/* ReLayNet: layers of the retina, pixel by pixel. Three encoders, a bottleneck, three decoders that
 * put each maximum back where its encoder's pool found it.
 *
 *     block      conv 7x3, bn, prelu (one slope)
 *     encode     block, then maxpool 2, which also gives the places of the maxima
 *     decode     max-unpool to those places, behind the encoder's block; block
 *
 * Names are those of the authors' PyTorch code (ai-med/relaynet_pytorch), whose weights fit. It
 * wants extents divisible by 8; here a decoder unpools to the extents of its encoder, so any will
 * do.
 *
 * Roy et al., "ReLayNet: retinal layer and fluid segmentation of macular optical coherence
 * tomography using fully convolutional networks", Biomedical Optics Express 8(8), 2017.
 */
#include "graph/op.h"
#include "zoo/zoo.h"

enum {
    LEVELS = 3
};

typedef struct options {
    meg_zoo_common common;
    int64_t width;
} options;

static int add_block(const meg_module *m, int64_t width, int x)
{
    char attrs[64];
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=7x3 pad=3x1", (long long)width);
    x = meg_zoo_layer(m, "conv", "conv", attrs, x);
    x = meg_zoo_layer(m, "batchnorm", "batchnorm", "", x);
    return meg_zoo_layer(m, "prelu", "prelu", "single=1", x);
}

/* `pooled`: of the encoder whose block is `skip`; its node has the places as second output. */
static int add_decoder(const meg_module *m, const options *o, int skip, int pooled, int x)
{
    meg_graph *g = m->graph;
    if (x < 0) return -1;
    const meg_box *full = &g->value[skip].shape;
    int places = g->node[g->value[pooled].maker].out[1];
    char size[64];
    snprintf(size, sizeof size, "size=%lldx%lld", (long long)full->hi[MEG_H],
             (long long)full->hi[MEG_W]);
    x = meg_graph_add(g, "max_unpool", meg_pool_text(g->pool, "%s.unpool", m->path), size, 2,
                      (int[]){x, places});
    x = meg_graph_add(g, "concat", meg_pool_text(g->pool, "%s.concat", m->path), "", 2,
                      (int[]){skip, x});
    return add_block(m, o->width, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const meg_axes *image = &o->common.image;
    for (int i = 1; i < image->count; i++)
        if (image->count != 3 || image->at[i] < 1 << LEVELS) {
            meg_fail(&g->error, MEG_EARG,
                     "%s: wants images CxHxW, %d pixels high and wide or more (image=1x512x64)",
                     model->name, 1 << LEVELS);
            return -1;
        }

    int skip[LEVELS], pooled[LEVELS];
    for (int s = 0; s < LEVELS; s++) {
        const meg_module m = {g, meg_pool_text(g->pool, "encode%d", s + 1)};
        skip[s] = add_block(&m, o->width, x);
        x = pooled[s] = meg_zoo_layer(&m, "maxpool", "maxpool", "kernel=2 indices=1", skip[s]);
    }
    x = add_block(&(meg_module){g, "bottleneck"}, o->width, x);
    for (int s = LEVELS - 1; s >= 0; s--) {
        const meg_module m = {g, meg_pool_text(g->pool, "decode%d", LEVELS - s)};
        x = add_decoder(&m, o, skip[s], pooled[s], x);
    }
    return meg_zoo_add_conv(&(meg_module){g, "classifier"}, "conv",
                            (meg_zoo_conv){o->common.classes, 1, 1, true}, x);
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("1x512x64", "10"),
    {"width", MEG_PARAM_INT, offsetof(options, width), "64", "filters of each block", NULL, 1,
     1 << 16},
    {.name = NULL},
};

const meg_model meg_models_relaynet[] = {
    {.name = "relaynet",
     .doc = "ReLayNet: layers of the retina, with max-unpooling",
     .paper = "Roy et al., ReLayNet: retinal layer and fluid segmentation of macular optical "
              "coherence tomography using fully convolutional networks, Biomedical Optics Express "
              "2017",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build},
    {.name = NULL},
};
