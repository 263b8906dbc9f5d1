/* Layers of sequences: see sequence.h. */
#include "zoo/sequence.h"

#include <math.h>

static const char *path_of(const meg_module *m, const char *name, const char *end)
{
    return meg_pool_text(m->graph->pool, "%s%s%s%s", m->path, m->path[0] ? "." : "", name, end);
}

int meg_zoo_linear(const meg_module *m, const char *name, meg_linear l, int x)
{
    meg_graph *g = m->graph;
    char attrs[64];
    if (x < 0) return -1;
    int64_t features = g->value[x].shape.hi[MEG_C];
    meg_weight_spec weight = {.kind = MEG_PARAMETER,
                              .shape = meg_box_of(l.units, features, 1, 1, 1),
                              .rank = 2,
                              .dims = {l.units, features},
                              .start = MEG_UNIFORM,
                              .bound = 1 / sqrt((double)features)};
    meg_weight_spec bias = weight;
    bias.shape = meg_box_of(1, l.units, 1, 1, 1);
    bias.rank = 1;
    int in[] = {x, meg_graph_parameter(g, path_of(m, name, l.weight), &weight),
                meg_graph_parameter(g, path_of(m, name, l.bias), &bias)};
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=1", (long long)l.units);
    return meg_graph_add(g, "conv", path_of(m, name, ""), attrs, 3, in);
}

int meg_zoo_attend(const meg_module *m, const char *name, meg_heads h, int x)
{
    int part[3];
    char attrs[64];
    snprintf(attrs, sizeof attrs, "heads=%lld causal=%d", (long long)h.count, h.causal);
    meg_graph_split(m->graph, x, 1, 3, part);
    return meg_graph_add(m->graph, "attention", path_of(m, name, ""), attrs, 3, part);
}

int meg_zoo_rows(const meg_module *m, const char *name, int64_t rows, int64_t features,
                 double deviation)
{
    return meg_graph_parameter(m->graph, path_of(m, name, ""),
                               &(meg_weight_spec){.kind = MEG_PARAMETER,
                                                  .shape = meg_box_of(1, rows, 1, 1, features),
                                                  .rank = 3,
                                                  .dims = {1, rows, features},
                                                  .start = MEG_NORMAL,
                                                  .bound = deviation});
}

int meg_zoo_add_rows(const meg_module *m, const char *name, int rows, int x)
{
    int turned = meg_graph_add(m->graph, "transpose", path_of(m, name, ".turned"), "axes=0x2x1", 1,
                               &rows);
    return meg_graph_add(m->graph, "add", path_of(m, name, ""), "", 2, (int[]){x, turned});
}
