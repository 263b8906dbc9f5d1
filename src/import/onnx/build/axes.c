/* Axes as a file counts them, and nodes of the graph that only move or reshape. */
#include "import/onnx/build/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int meg_onnx_axis(int64_t axis, int rank)
{
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

int meg_onnx_swap(meg_onnx_build *b, int x, int axis)
{
    char words[32] = "axes=0";
    for (int i = 1; i < b->graph->value[x].rank; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "x%d",
                 i == 1      ? axis
                 : i == axis ? 1
                             : i);
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), words, 1, &x);
}

int meg_onnx_shaped(meg_onnx_build *b, int x, int rank, const int64_t dims[])
{
    char words[128] = "dims=0";
    const meg_value *v = &b->graph->value[x];
    bool same = v->rank == rank;
    for (int i = 1; same && i < rank; i++)
        same = v->dims[i] == dims[i];
    if (same) return x;
    for (int i = 1; i < rank; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "x%" PRId64, dims[i]);
    bool flat = rank == 2;
    return meg_graph_add(b->graph, flat ? "flatten" : "reshape",
                         meg_onnx_fresh(b, flat ? "flatten" : "reshape"), flat ? "" : words, 1, &x);
}
