/* The matrix of models and plans that must give the answer of one rank: data, layer and pipeline
 * parallelism, both directions, hybrids; odd sizes throughout. A small part of it is an ordinary
 * test, all of it is ./do fuzz --matrix.
 *
 *     data        2, 3, 4 replicas, also where they do not divide the batch
 *     pipelines   every schedule x 2, 3, 4 seats x 1 .. 8 micro-batches, but what a schedule cannot
 *                 have: chimera on 3, two directions with 1 micro-batch, interleaved with
 *                 micro-batches that are no multiple of the seats
 *     hybrids     pipelines x replicas, up to 8 ranks
 *     by hand     cuts that no measure would choose
 *
 * Plans with the same batch, normalisation groups and samples make a group: they have one answer.
 */
#ifndef TESTS_MATRIX_H
#define TESTS_MATRIX_H

#include "ranks.h"

typedef struct matrix_model {
    const char *model, *options;
    const char *level;  /* at which it has eight stages and more */
    const char *assign; /* three uneven stages */
    double rate; /* of learning: below where a step would magnify the rounding of the one before */
    const char *in_float; /* options there, if with its own it has gradients that are zero but for
                             rounding: convolutions of one channel in front of batch norms; NULL */
} matrix_model;

static const matrix_model matrix_models[] = {
    {"resnet-cifar", "depth=20 image=3x57x93 classes=5 width=2", "block", "layer1.0,layer3.2", 1e-3,
     NULL},
    {"resnet-cifar", "depth=110 version=2 image=3x9x8 classes=5 width=2", "block",
     "layer1.1,layer1.3", 1e-3, NULL},
    {"unet", "image=1x48x80 classes=3 width=2 bn=1", "layer", "enc1.pool,dec1.bn2", 1e-3, NULL},
    {"amoebanet-d", "image=3x64x96 classes=5 layers=3 filters=8", "block", "cells.1,cells.5", 1e-3,
     "image=3x96x128 classes=5 layers=3 filters=16"},
    {"inception-v3", "image=3x107x139 classes=4 aux=0 width=2", "block", "Mixed_5b,Mixed_7c", 1e-7,
     NULL},
    {"cosmoflow", "image=2x9x8x11 pools=2 width=2", "layer", "pool1,fc3", 1e-3, NULL},
    {"gpt", "tokens=7 classes=13 layers=6 heads=2 width=8", "block", "h.4,h.5", 1e-3, NULL},
    {"vit_b_16", "image=3x16x24 patch=8 layers=6 heads=2 width=8 mlp=16 classes=5", "block", "",
     1e-3, NULL},
    {"relaynet", "image=1x32x16 classes=4 width=4", "layer", "", 1e-3, NULL},
    {"unet3d", "image=1x16x16x16 classes=3 width=2", "layer", "", 1e-3, NULL},
};

typedef struct matrix_row {
    const char *one, *many; /* each says its norm */
    int ranks;
    int64_t samples; /* a tail, if no multiple of the batch */
} matrix_row;

static const matrix_row matrix_rows[] = {
    /* data */
    {"batch=4 norm=2", "replicas=2", 2, 4},
    {"batch=10 norm=0", "replicas=2 bucket=1KiB", 2, 13},
    {"batch=10 norm=0", "replicas=3", 3, 13},
    {"batch=10 norm=0", "replicas=4 allreduce=halving_doubling", 4, 13},
    {"batch=6 norm=3", "replicas=4", 4, 6},
    {"batch=12 norm=2", "replicas=3 micro=2 bucket=1KiB", 3, 13},
    {"batch=10 norm=0", "replicas=3 recompute=segments zero=1", 3, 13},
    {"batch=12 norm=2", "replicas=2 micro=3 recompute=segments", 2, 13},
    /* hybrids */
    {"batch=12 norm=2", "replicas=3 stages=2 schedule=chimera micro=2", 6, 13},
    {"batch=12 norm=2", "replicas=2 stages=3 schedule=mast micro=3", 6, 13},
    {"batch=12 norm=2", "replicas=2 stages=3 schedule=1f1b micro=3 bucket=1KiB", 6, 13},
    {"batch=12 norm=3", "replicas=2 stages=2 schedule=1f1b micro=2", 4, 12},
    {"batch=12 norm=3", "replicas=2 stages=3 schedule=zb_h1 micro=4", 6, 12},
    {"batch=12 norm=3", "replicas=2 stages=4 schedule=serial micro=2", 8, 12},
    {"batch=16 norm=2", "replicas=2 stages=4 schedule=gpipe micro=4", 8, 18},
    {"batch=16 norm=2", "replicas=2 stages=4 schedule=master micro=2", 8, 18},
    {"batch=16 norm=2", "replicas=2 stages=4 schedule=chimera micro=4", 8, 18},
    {"batch=16 norm=2", "replicas=4 stages=4 chunks=2 schedule=interleaved micro=2", 8, 18},
    {"batch=16 norm=2", "replicas=4 stages=2 schedule=zb_h1 micro=4 phases=1", 8, 18},
    {"batch=12 norm=2", "replicas=2 stages=3 schedule=1f1b micro=3 recompute=segments", 6, 13},
    {"batch=12 norm=3", "replicas=2 stages=3 schedule=zb_h1 micro=4 recompute=segments", 6, 12},
    {"batch=16 norm=2", "replicas=2 stages=4 schedule=chimera micro=4 recompute=segments", 8, 18},
    {"batch=16 norm=2", "stages=4 chunks=2 schedule=interleaved micro=2 recompute=segments", 2, 18},
};

enum {
    MATRIX_MODELS = (int)(sizeof matrix_models / sizeof *matrix_models),
    MATRIX_ROWS = (int)(sizeof matrix_rows / sizeof *matrix_rows),
    MATRIX_ASKED = 7, /* the models that were promised; the others come on top */
    MATRIX_GROUPS = 16,
    MATRIX_PLANS = 32 /* of a group */
};

typedef struct matrix_plan {
    char words[256];
    int ranks;
} matrix_plan;

typedef struct matrix_group {
    char one[64];
    int64_t samples;
    double rate;
    int plans;
    matrix_plan plan[MATRIX_PLANS];
} matrix_group;

typedef struct matrix {
    int groups;
    matrix_group group[MATRIX_GROUPS];
} matrix;

static inline void matrix_add(matrix *m, const matrix_model *model, const matrix_row *r)
{
    int k = 0;
    while (k < m->groups &&
           (strcmp(m->group[k].one, r->one) != 0 || m->group[k].samples != r->samples))
        k++;
    matrix_group *g = &m->group[k];
    if (k >= MATRIX_GROUPS || g->plans >= MATRIX_PLANS) abort();
    if (k == m->groups) {
        m->groups++;
        snprintf(g->one, sizeof g->one, "%s", r->one);
        g->samples = r->samples;
        g->rate = model->rate;
    }
    matrix_plan *p = &g->plan[g->plans++];
    p->ranks = r->ranks;
    snprintf(p->words, sizeof p->words, "%s level=%s %s", r->one, model->level, r->many);
}

/* Every pipeline of so many micro-batches. */
static inline void matrix_add_pipes(matrix *m, const matrix_model *model, int micro)
{
    static const char *const rows[] = {"serial", "gpipe",  "1f1b",    "zb_h1",
                                       "mast",   "master", "chimera", "interleaved"};
    static const int each[] = {3, 2, 2, 1, 2, 1, 1, 1}, tail[] = {2, 0, 1, 0, 3, 0, 2, 0};
    char one[64], many[128];
    int samples = each[micro - 1], batch = micro * samples;
    snprintf(one, sizeof one, "batch=%d norm=%d", batch, samples > 1 ? 2 : 1);
    for (int k = 0; k < 8; k++)
        for (int seats = 2; seats <= 4; seats++) {
            bool loop = strcmp(rows[k], "interleaved") == 0, two = k >= 4 && !loop;
            if (loop && micro % seats) continue;
            if (two && micro < 2) continue;
            if (strcmp(rows[k], "chimera") == 0 && seats % 2) continue;
            int eta = strcmp(rows[k], "master") == 0 && micro > 2 && micro % 2
                          ? 2 + seats % (micro - 1)
                          : 0;
            snprintf(
                many, sizeof many,
                "micro=%d stages=%d chunks=%d schedule=%s replications=%d balance=%s bucket=%s",
                micro, loop ? 2 * seats : seats, loop ? 2 : 1, rows[k], eta,
                (seats + micro) % 2 ? "memory" : "compute", micro % 2 ? "1KiB" : "16MiB");
            matrix_add(m, model, &(matrix_row){one, many, seats, batch + tail[micro - 1]});
        }
}

static inline matrix *matrix_of(const matrix_model *model)
{
    matrix *m = calloc(1, sizeof *m);
    char words[128];
    for (int i = 0; i < MATRIX_ROWS; i++)
        matrix_add(m, model, &matrix_rows[i]);
    for (int micro = 1; micro <= 8; micro++)
        matrix_add_pipes(m, model, micro);
    if (!model->assign[0]) return m;
    snprintf(words, sizeof words, "stages=3 micro=3 assign=%s", model->assign);
    matrix_add(m, model, &(matrix_row){"batch=6 norm=2", words, 3, 7});
    return m;
}

/* The case of a group's plan, or of its answer (-1). Momentum, so that there is optimizer state. */
static inline ranks_case matrix_case(const meg_graph *g, const matrix_group *group, int plan,
                                     char words[320])
{
    snprintf(words, 320, "momentum=0.9 %s", plan < 0 ? group->one : group->plan[plan].words);
    return (ranks_case){.graph = g,
                        .plan = words,
                        .device = "ref64",
                        .ranks = plan < 0 ? 1 : group->plan[plan].ranks,
                        .steps = 2,
                        .rate = group->rate,
                        .samples = group->samples,
                        .eval = strstr(group->one, "batch=3 ") != NULL}; /* of one micro-batch */
}

#endif
