/* Writing ONNX files: a graph with its weights becomes a file that others run. */
#ifndef MEG_IMPORT_ONNX_WRITE_WRITE_H
#define MEG_IMPORT_ONNX_WRITE_WRITE_H

#include "graph/graph.h"

/* Hands the numbers of a parameter or state to `put`, in pieces, in ascending order. */
typedef struct meg_onnx_source {
    bool (*get)(void *context, const meg_value *v,
                meg_status (*put)(void *to, const float *piece, int64_t count), void *to);
    void *context;
} meg_onnx_source;

/* Writes beside `path`, syncs, renames. The loss stays behind: what it looks at is the output. More
 * than `inside` bytes of weights (0: 1.9 GB, what protobuf's readers take) go to `path`.data. */
meg_status meg_onnx_save(meg_error *e, const char *path, const meg_graph *g,
                         const meg_onnx_source *weights, int64_t inside);

#endif
