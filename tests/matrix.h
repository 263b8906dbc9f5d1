/* The matrix of models and plans that must give the answer of one rank: data, layer and pipeline
 * parallelism, both directions, hybrids; odd sizes throughout. A small part of it is an ordinary
 * test, all of it is ./do fuzz --matrix.
 */
#ifndef TESTS_MATRIX_H
#define TESTS_MATRIX_H

#include "ranks.h"

typedef struct matrix_model {
    const char *model, *options;
    const char *level; /* at which it has four stages and more */
} matrix_model;

static const matrix_model matrix_models[] = {
    {"resnet-cifar", "depth=20 image=3x11x9 classes=5 width=4", "block"},
    {"resnet-cifar", "depth=110 version=2 image=3x9x8 classes=5 width=2", "block"},
    {"unet", "image=1x32x48 classes=3 width=2", "layer"},
    {"amoebanet-d", "image=3x35x33 classes=5 layers=3 filters=8", "block"},
    {"inception_v3", "image=3x75x75 classes=4 aux=0", "block"},
    {"cosmoflow", "image=2x8x8x8 pools=2 width=3", "layer"},
    {"gpt", "tokens=7 classes=13 layers=3 heads=2 width=8", "block"},
    {"vit_tiny", "image=3x32x32 classes=5", "block"},
    {"relaynet", "image=1x32x16 classes=4 width=4", "layer"},
    {"unet3d", "image=1x16x16x16 classes=3 width=2", "layer"},
};

typedef struct matrix_plan {
    const char *one, *many; /* each says its norm */
    int ranks;
    int64_t samples; /* a tail, if no multiple of the batch */
} matrix_plan;

static const matrix_plan matrix_plans[] = {
    /* data */
    {"batch=4 norm=2", "replicas=2", 2, 4},
    {"batch=10 norm=0", "replicas=3", 3, 12},
    {"batch=6 norm=3", "replicas=4", 4, 6},
    /* layer */
    {"batch=2 norm=2", "stages=2 schedule=serial", 2, 2},
    {"batch=2 norm=0", "stages=3 schedule=serial", 3, 2},
    {"batch=3 norm=2", "stages=4 schedule=serial", 4, 4},
    /* schedules */
    {"batch=2 norm=2", "stages=2 schedule=gpipe micro=1", 2, 2},
    {"batch=6 norm=2", "stages=3 schedule=gpipe micro=3", 3, 8},
    {"batch=8 norm=1", "stages=4 schedule=gpipe micro=8", 4, 8},
    {"batch=4 norm=2", "stages=2 schedule=1f1b micro=2", 2, 6},
    {"batch=10 norm=2", "stages=3 schedule=1f1b micro=5", 3, 10},
    {"batch=8 norm=2", "stages=4 schedule=1f1b micro=4", 4, 8},
    {"batch=2 norm=1", "stages=2 schedule=zb_h1 micro=2", 2, 2},
    {"batch=8 norm=2", "stages=3 schedule=zb_h1 micro=4", 3, 8},
    {"batch=6 norm=1", "stages=4 schedule=zb_h1 micro=6", 4, 6},
    {"batch=4 norm=1", "stages=4 chunks=2 schedule=interleaved micro=4", 2, 4},
    {"batch=6 norm=2", "stages=6 chunks=2 schedule=interleaved micro=3", 3, 6},
    {"batch=4 norm=2", "stages=2 schedule=mast micro=2", 2, 4},
    {"batch=7 norm=1", "stages=3 schedule=mast micro=7", 3, 7},
    {"batch=6 norm=2", "stages=3 schedule=master micro=3", 3, 7},
    {"batch=8 norm=2", "stages=4 schedule=master micro=4 replications=2", 4, 8},
    {"batch=4 norm=2", "stages=2 schedule=chimera micro=2", 2, 5},
    {"batch=8 norm=1", "stages=4 schedule=chimera micro=8", 4, 8},
    /* hybrids */
    {"batch=6 norm=3", "stages=2 schedule=1f1b micro=2 replicas=2", 4, 6},
    {"batch=12 norm=2", "stages=2 schedule=chimera micro=2 replicas=3", 6, 13},
    {"batch=8 norm=4", "stages=4 schedule=gpipe micro=2 replicas=2", 8, 8},
    {"batch=8 norm=2", "stages=4 schedule=master micro=2 replicas=2", 8, 10},
    {"batch=16 norm=2", "stages=4 chunks=2 schedule=interleaved micro=2 replicas=4", 8, 16},
};

enum {
    MATRIX_MODELS = (int)(sizeof matrix_models / sizeof *matrix_models),
    MATRIX_PLANS = (int)(sizeof matrix_plans / sizeof *matrix_plans)
};

/* Largest relative difference from one rank, in double. */
static inline double matrix_case(const matrix_model *m, const matrix_plan *p, const char *device)
{
    char many[256], what[512];
    meg_graph *g = network_zoo(m->model, m->options);
    snprintf(many, sizeof many, "%s level=%s %s", p->one, m->level, p->many);
    snprintf(what, sizeof what, "%s: %s", m->model, many);
    ranks_case one = {.graph = g,
                      .plan = p->one,
                      .device = "ref64",
                      .ranks = 1,
                      .steps = strcmp(device, "ref64") == 0 ? 2 : 1,
                      .samples = p->samples},
               all = one;
    all.plan = many;
    all.ranks = p->ranks;
    all.device = device;
    network_result *a = ranks_run(&one), *b = ranks_run(&all);
    double d = network_difference(a, b, what);
    if (d <= 1e-10) assert_true(a->correct == b->correct);
    network_free(a);
    network_free(b);
    meg_graph_destroy(g);
    return d;
}

#endif
