/* Networks x meshes that must give the answer of one rank: pixels, volumes, channels, filters, wide halos,
 * optimizer states and weights cut over replicas, stages with different meshes, both directions. Some of
 * it is t770-mesh, in double; all of it is ./do fuzz --mesh-list [ref64|cpu].
 */
#ifndef TESTS_MESH_LIST_H
#define TESTS_MESH_LIST_H

#include "matrix.h"

typedef struct mesh_model {
    matrix_model at;
    const char *never; /* meshes of axes that it does not have */
} mesh_model;

static const mesh_model mesh_models[] = {
    {{"resnet-cifar", "depth=110 version=2 image=3x20x20 classes=5 width=2", "block", "", 1e-3,
      NULL},
     "2x2x2"},
    {{"unet", "image=1x48x80 classes=3 width=2 bn=1", "block", "", 1e-3, NULL}, "2x2x2"},
    {{"amoebanet-d", "image=3x96x160 classes=5 layers=3 filters=8", "block", "", 1e-3,
      "image=3x96x160 classes=5 layers=3 filters=16"},
     "2x2x2"},
    {{"vgg11", "image=3x96x160 classes=5 hidden=16 width=2", "block", "", 1e-3, NULL}, "2x2x2"},
    {{"unet3d", "image=1x16x24x40 classes=3 width=2", "block", "", 1e-3, NULL}, ""},
    {{"cosmoflow", "image=2x13x18x27 pools=2 width=2", "block", "", 1e-3, NULL}, ""},
    {{"vit_b_16", "image=3x24x40 patch=8 layers=3 heads=2 width=8 mlp=16 classes=5", "block", "",
      1e-3, NULL},
     "2x2x2"},
    {{"gpt", "tokens=7 classes=13 layers=3 heads=2 width=8", "block", "", 1e-3, NULL},
     "2x1 3x1 2x2 2x2,1,1 2x2x2"},
};

#define MESH_ROW(words, ranks)                                                                     \
    {                                                                                              \
        "batch=4 norm=2", words, ranks, 6                                                          \
    }

static const matrix_row mesh_rows[] = {
    MESH_ROW("mesh=2x1", 2),
    MESH_ROW("mesh=1x2", 2),
    MESH_ROW("mesh=2x2", 4),
    MESH_ROW("mesh=3x1", 3),
    MESH_ROW("mesh=1x5", 5),
    MESH_ROW("mesh=2x2x2", 8),
    MESH_ROW("mesh=c2", 2),
    MESH_ROW("mesh=c3 channels=channel", 3),
    MESH_ROW("mesh=c2 channels=filter", 2),
    MESH_ROW("replicas=2 zero=1", 2),
    MESH_ROW("replicas=4 zero=1", 4),
    MESH_ROW("replicas=2 zero=3", 2),
    MESH_ROW("replicas=4 zero=3", 4),
    MESH_ROW("mesh=1x2 stages=2 micro=2 replicas=2 zero=3", 8),
    MESH_ROW("mesh=2x2,1,1 stages=3 micro=2", 6),
    MESH_ROW("mesh=2x2 wide=2", 4),
    MESH_ROW("mesh=1x2 stages=2 micro=2 wide=4", 4),
    MESH_ROW("mesh=2x1 stages=2 micro=2 schedule=chimera replicas=2", 8),
    MESH_ROW("mesh=1x2 stages=2 micro=2 schedule=1f1b replicas=2", 8),
    MESH_ROW("mesh=c2,1x2 stages=2 micro=2 schedule=mast replicas=2", 8),
    MESH_ROW("mesh=2x2 recompute=segments", 4),
    MESH_ROW("mesh=1x2 wide=3 stages=2 micro=2 recompute=segments", 4),
    MESH_ROW("mesh=c2 recompute=segments", 2),
};

enum {
    MESH_MODELS = (int)(sizeof mesh_models / sizeof *mesh_models),
    MESH_ROWS = (int)(sizeof mesh_rows / sizeof *mesh_rows)
};

static inline bool mesh_never(const mesh_model *m, const matrix_row *r)
{
    const char *mesh = r->many + strlen("mesh=");
    size_t length = strcspn(mesh, " ");
    for (const char *at = m->never; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && strncmp(at, mesh, length) == 0) return true;
    return false;
}

/* Each `stride`-th row from `first` on. */
static inline matrix *mesh_matrix(const mesh_model *m, int first, int stride)
{
    matrix *all = calloc(1, sizeof *all);
    for (int i = first; i < MESH_ROWS; i += stride)
        if (!mesh_never(m, &mesh_rows[i])) matrix_add(all, &m->at, &mesh_rows[i]);
    return all;
}

static inline const matrix_model *mesh_at(int i, matrix **plans)
{
    *plans = i < MESH_MODELS ? mesh_matrix(&mesh_models[i], 0, 1) : NULL;
    return i < MESH_MODELS ? &mesh_models[i].at : NULL;
}

#endif
