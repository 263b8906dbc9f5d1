/* ONNX in and out: models of other frameworks become graphs that train, graphs with their weights
 * become files that others run. Operator sets 13 and later are read, 20 is written; docs/onnx.md
 * says which operators there are and how they do in ONNX's own tests.
 */
#ifndef MEG_IMPORT_ONNX_ONNX_H
#define MEG_IMPORT_ONNX_ONNX_H

#include "base/option.h"
#include "graph/graph.h"

typedef struct meg_onnx_options {
    char loss[MEG_TEXT];   /* added to the one output; "none": plain outputs */
    char output[MEG_TEXT]; /* which one; "": all */
    meg_axes image;        /* extents of a sample where the file leaves them open; {1, {0}}: none */
    char freeze[MEG_TEXT], train[MEG_TEXT]; /* patterns over names of weights: graph/freeze.h */
} meg_onnx_options;

extern const meg_param meg_onnx_params[];

/* Is told what a model lost on its way into the file. */
typedef struct meg_onnx_listener {
    void (*warn)(void *context, const char *message);
    void *context;
} meg_onnx_listener;

/* The graph of a file, for one sample unless the file fixes the batch. Its weights start with the
 * file's, which stays open as long as the graph lives. */
meg_status meg_onnx_load(meg_error *e, const char *path, const char *options,
                         const meg_onnx_listener *listener, meg_graph **out);

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

/* The i-th ONNX operator that can be read; NULL past the end. */
const char *meg_onnx_operator(int i);

/* How much of an operator can be read, where it is not all; "": all that leaves the batch alone. */
const char *meg_onnx_claim(const char *op);

#endif
