/* Networks x meshes that must give the answer of one rank, in double: pixels, volumes, channels, filters,
 * stages with different meshes, both directions, replicas. Some of it is t770-mesh, all of it is
 * ./do fuzz --mesh-list.
 */
#ifndef TESTS_MESH_LIST_H
#define TESTS_MESH_LIST_H

#include "ranks.h"

typedef struct mesh_model {
    const char *model, *options;
    const char *never; /* meshes that are refused: an axis is too short for them */
    int steps;
} mesh_model;

static const mesh_model mesh_models[] = {
    {"resnet-cifar", "depth=110 version=2 image=3x20x20 classes=5 width=2", "2x2x2", 2},
    {"unet", "image=1x48x80 classes=3 width=2 bn=1", "2x2x2", 2},
    {"amoebanet-d", "image=3x64x96 classes=5 layers=3 filters=8", "3x1 1x5 2x2x2", 2},
    {"vgg11", "image=3x32x32 classes=5 hidden=16", "3x1 1x5 2x2x2", 1},
    {"unet3d", "image=1x16x16x16 classes=3 width=2", "3x1 1x5", 2},
    {"cosmoflow", "image=2x13x12x20 pools=2 width=2", "", 2},
    {"vit_b_16", "image=3x24x40 patch=8 layers=3 heads=2 width=8 mlp=16 classes=5", "2x2x2", 2},
    {"gpt", "tokens=7 classes=13 layers=3 heads=2 width=8", "2x1 3x1 2x2 2x2,1,1 2x2x2", 2},
};

typedef struct mesh_row {
    const char *words;
    int ranks;
} mesh_row;

static const mesh_row mesh_rows[] = {
    {"mesh=2x1", 2},
    {"mesh=1x2", 2},
    {"mesh=2x2", 4},
    {"mesh=3x1", 3},
    {"mesh=1x5", 5},
    {"mesh=2x2x2", 8},
    {"mesh=c2", 2},
    {"mesh=c3 channels=channel", 3},
    {"mesh=c2 channels=filter", 2},
    {"mesh=2x2,1,1 stages=3 micro=2", 6},
    {"mesh=2x1 wide=2", 2},
    {"mesh=1x2 stages=2 micro=2 wide=4", 4},
    {"mesh=2x1 stages=2 micro=2 schedule=chimera replicas=2", 8},
    {"mesh=1x2 stages=2 micro=2 schedule=1f1b replicas=2", 8},
    {"mesh=c2,1x2 stages=2 micro=2 schedule=mast replicas=2", 8},
};

enum {
    MESH_MODELS = (int)(sizeof mesh_models / sizeof *mesh_models),
    MESH_ROWS = (int)(sizeof mesh_rows / sizeof *mesh_rows)
};

static inline bool mesh_never(const mesh_model *m, const mesh_row *r)
{
    const char *mesh = r->words + strlen("mesh=");
    size_t length = strcspn(mesh, " ");
    for (const char *at = m->never; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && strncmp(at, mesh, length) == 0) return true;
    return false;
}

/* The largest difference of a model's rows, each `stride`-th from `first` on. */
static inline double mesh_list_run(const mesh_model *m, int first, int stride, int *cases)
{
    static const char words[] = "batch=4 norm=2";
    meg_graph *g = network_zoo(m->model, m->options);
    ranks_case one = {.graph = g, .plan = words, .device = "ref64", .ranks = 1, .rate = 1e-3};
    one.steps = m->steps;
    network_result *judge = ranks_run(&one);
    double worst = 0;
    for (int i = first; i < MESH_ROWS; i += stride) {
        char plan[160], what[256];
        ranks_case many = one;
        if (mesh_never(m, &mesh_rows[i])) continue;
        snprintf(plan, sizeof plan, "%s %s", words, mesh_rows[i].words);
        snprintf(what, sizeof what, "%s %s", m->model, mesh_rows[i].words);
        many.plan = plan;
        many.ranks = mesh_rows[i].ranks;
        network_result *all = ranks_run(&many);
        double d = network_difference(judge, all, what);
        if (!(d <= worst)) worst = d;
        network_free(all);
        ++*cases;
    }
    network_free(judge);
    meg_graph_destroy(g);
    return worst;
}

#endif
