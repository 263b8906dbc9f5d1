/* U-Nets: a way down of double convolutions and max-pools, a way up of double convolutions that
 * also see the last value of the same level on the way down. Logits per pixel, of planes or volumes.
 *
 *     enc1 -------------------------------- skip --> dec1 --> head
 *       \ pool                                      / up
 *       enc2 ------------------------ skip --> dec2
 *         \ pool                              / up
 *          ...                             ...
 *                         mid
 *
 * Padded, the logits have the extent of the image, which all pools must halve without rest. With
 * crop=1, the papers' own form, each 3-tap convolution takes a pixel off every side and skips are
 * cut at their centre: 572 becomes 388, and 132x132x116 becomes 44x44x28; labels have these extents.
 *
 * In volumes (Cicek et al.) the first convolution of a level has half its width, so that no narrow
 * value lies between two pools, and the way up keeps the width of what it widens, without bias.
 * Without batch norm, with 3 channels and 3 classes, it has the paper's 19,069,955 weights.
 */
#include "zoo/zoo.h"

#include <math.h>

enum {
    TRIM = 4
}; /* pixels that the two convolutions of a level take off an extent */
enum {
    UP_TRANSPOSE,
    UP_NEAREST,
    UP_LINEAR
};

typedef struct options {
    meg_zoo_common common;
    int64_t width, depth;
    bool bn, crop;
    int up;
} options;

typedef struct layout {
    int space;     /* axes of the image */
    bool halves;   /* the first convolution on the way down has half the width */
    bool up_keeps; /* transposed convolutions keep the width and have no bias; else they halve it */
} layout;

typedef struct net {
    meg_graph *graph;
    const options *o;
    const layout *l;
} net;

/* ---- extents ---- */

static bool fits(const options *o, int64_t extent)
{
    int64_t trim = o->crop ? TRIM : 0;
    for (int s = 0; s < o->depth; s++) {
        extent -= trim;
        if (extent < 2 || extent % 2) return false;
        extent /= 2;
    }
    /* On the way up nothing may vanish either. */
    extent -= trim;
    for (int s = 0; s < o->depth && extent > 0; s++)
        extent = 2 * extent - trim;
    return extent > 0;
}

static bool check_image(meg_graph *g, const meg_model *model, const options *o)
{
    const meg_axes *image = &o->common.image;
    const layout *l = model->layout;
    if (image->count != l->space + 1) {
        meg_fail(&g->error, MEG_EARG, "%s: image has %d extents, but wants %s", model->name,
                 image->count,
                 l->space == 2 ? "CxHxW (image=3x512x512)" : "CxDxHxW (image=1x64x64x64)");
        return false;
    }
    for (int i = 1; i < image->count; i++) {
        int64_t extent = image->at[i], less = extent, more = extent;
        if (fits(o, extent)) continue;
        while (less > 0 && !fits(o, less))
            less--;
        while (!fits(o, more))
            more++;
        char below[32] = "";
        if (less > 0) snprintf(below, sizeof below, "%lld or ", (long long)less);
        meg_fail(&g->error, MEG_EARG,
                 "%s: image has an extent of %lld, which %d pools%s do not halve without rest: use "
                 "%s%lld",
                 model->name, (long long)extent, (int)o->depth, o->crop ? " and crop=1" : "", below,
                 (long long)more);
        return false;
    }
    return true;
}

/* What a skip loses on each side to what comes up to its level: 4 at the lowest, then 16, 40, 88. */
static int64_t margin(const options *o, int level)
{
    int64_t cut = TRIM;
    for (int s = (int)o->depth - 1; s > level; s--)
        cut = 2 * cut + 2 * TRIM;
    return cut;
}

/* ---- layers ---- */

static int add_conv(const net *t, const meg_module *m, int number, int64_t filters, int x)
{
    char conv[16], bn[16], relu[16], attrs[96];
    snprintf(conv, sizeof conv, "conv%d", number);
    snprintf(bn, sizeof bn, "bn%d", number);
    snprintf(relu, sizeof relu, "relu%d", number);
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=3 pad=%d bias=%d", (long long)filters,
             !t->o->crop, !t->o->bn);
    x = meg_zoo_layer(m, "conv", conv, attrs, x);
    if (t->o->bn) return meg_zoo_bn_relu(m, bn, "", x);
    return meg_zoo_layer(m, "relu", relu, "", x);
}

/* Twice as many pixels along each axis. Resized values are narrowed before, where it costs less:
 * both are linear, one over channels, one over pixels. */
static int add_up(const net *t, const meg_module *m, int64_t width, int x)
{
    char attrs[96];
    int64_t filters = t->l->up_keeps ? 2 * width : width;
    if (t->o->up == UP_TRANSPOSE) {
        snprintf(attrs, sizeof attrs, "filters=%lld kernel=2 stride=2 bias=%d", (long long)filters,
                 !t->l->up_keeps);
        return meg_zoo_layer(m, "conv_transpose", "up", attrs, x);
    }
    snprintf(attrs, sizeof attrs, "mode=%s scale=2", t->o->up == UP_NEAREST ? "nearest" : "linear");
    x = meg_zoo_add_conv(m, "up", (meg_zoo_conv){width, 1, 1, true}, x);
    return meg_zoo_layer(m, "resize", "resize", attrs, x);
}

static int add_skip(const net *t, const meg_module *m, int level, int x)
{
    if (!t->o->crop) return x;
    char attrs[64];
    long long cut = margin(t->o, level);
    snprintf(attrs, sizeof attrs, "axes=%s begin=%lld end=-%lld",
             t->l->space == 2 ? "2x3" : "2x3x4", cut, cut);
    return meg_zoo_layer(m, "slice", "crop", attrs, x);
}

/* The way up to a level: the skip comes first in the concatenation, as in most implementations. */
static int add_decoder(const net *t, int level, int skip, int x)
{
    meg_pool *pool = t->graph->pool;
    const meg_module m = {t->graph, meg_pool_text(pool, "dec%d", level + 1)};
    int64_t width = t->o->width << level;
    x = add_up(t, &m, width, x);
    skip = add_skip(t, &m, level, skip);
    x = meg_graph_add(t->graph, "concat", meg_pool_text(pool, "%s.concat", m.path), "", 2,
                      (int[]){skip, x});
    x = add_conv(t, &m, 1, width, x);
    return add_conv(t, &m, 2, width, x);
}

static int add_encoder(const net *t, const char *path, int level, int x)
{
    const meg_module m = {t->graph, path};
    int64_t width = t->o->width << level;
    x = add_conv(t, &m, 1, t->l->halves ? width / 2 : width, x);
    return add_conv(t, &m, 2, width, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const net t = {g, o, model->layout};
    int skip[16], depth = (int)o->depth;
    if (!check_image(g, model, o)) return -1;
    for (int s = 0; s < depth; s++) {
        const char *path = meg_pool_text(g->pool, "enc%d", s + 1);
        skip[s] = add_encoder(&t, path, s, x);
        x = meg_zoo_layer(&(meg_module){g, path}, "maxpool", "pool", "kernel=2", skip[s]);
    }
    x = add_encoder(&t, "mid", depth, x);
    for (int s = depth - 1; s >= 0; s--)
        x = add_decoder(&t, s, skip[s], x);
    return meg_zoo_add_conv(&(meg_module){g, ""}, "head",
                            (meg_zoo_conv){o->common.classes, 1, 1, true}, x);
}

/* As the paper has it: deviation sqrt(2 / inputs of a neuron). */
static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_IN, sqrt(2));
}

#define AT(field) offsetof(options, field)
#define UNET_PARAMS(image_, width_, depth_, bn_, up_)                                              \
    MEG_ZOO_PARAMS(image_, "2"), {"width",                                                         \
                                  MEG_PARAM_INT,                                                   \
                                  AT(width),                                                       \
                                  width_,                                                          \
                                  "of the first level; each has twice as many",                    \
                                  NULL,                                                            \
                                  2,                                                               \
                                  1 << 16},                                                        \
        {"depth", MEG_PARAM_INT, AT(depth), depth_, "pools on the way down", NULL, 1, 10},         \
        {"bn", MEG_PARAM_BOOL, AT(bn), bn_, "batch norm after each convolution", NULL, 0, 0},      \
        {"crop",                                                                                   \
         MEG_PARAM_BOOL,                                                                           \
         AT(crop),                                                                                 \
         "0",                                                                                      \
         "convolutions without padding, skips cut to fit",                                         \
         NULL,                                                                                     \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        "up", MEG_PARAM_CHOICE, AT(up), "transpose", "how the way up widens", up_, 0, 0            \
    }

static const meg_param params[] = {
    UNET_PARAMS("3x512x512", "64", "4", "0", "transpose|nearest|bilinear"),
    {.name = NULL},
};

static const meg_param params3d[] = {
    UNET_PARAMS("1x64x64x64", "64", "3", "1", "transpose|nearest|trilinear"),
    {.name = NULL},
};

const meg_model meg_models_unet[] = {
    {.name = "unet",
     .doc = "U-Net: classes of pixels",
     .paper = "Ronneberger, Fischer, Brox, U-Net: convolutional networks for biomedical image "
              "segmentation, MICCAI 2015",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start,
     .layout = &(const layout){.space = 2}},
    {.name = "unet3d",
     .doc = "3-D U-Net: classes of voxels",
     .paper = "Cicek, Abdulkadir, Lienkamp, Brox, Ronneberger, 3D U-Net: learning dense volumetric "
              "segmentation from sparse annotation, MICCAI 2016",
     .params = params3d,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start,
     .layout = &(const layout){.space = 3, .halves = true, .up_keeps = true}},
    {.name = NULL},
};
