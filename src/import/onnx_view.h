/* Values whose batch is not the first axis in the file: see onnx_view.c. */
#ifndef MEG_IMPORT_ONNX_VIEW_H
#define MEG_IMPORT_ONNX_VIEW_H

#include "import/onnx_build.h"

enum {
    MEG_ONNX_ATOMS = 12
};

/* How the axes of the file lie in a value of the graph. Atoms factor the value's extents, row-major;
 * atom 0 is the batch. Axis k of the file has atoms order[begin[k]] to order[begin[k + 1] - 1]. */
typedef struct meg_onnx_view {
    int value;
    int atoms;
    int64_t extent[MEG_ONNX_ATOMS];
    int axes, begin[MEG_ONNX_RANK + 1], order[MEG_ONNX_ATOMS];
} meg_onnx_view;

/* Does the node read such a value, or make one? Then it is read here. */
bool meg_onnx_has_view(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_view(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row);

/* Of Transpose and Reshape that move or join the batch. */
meg_status meg_onnx_view_transpose(meg_onnx_build *b, const meg_onnx_node *n, const int64_t perm[]);
meg_status meg_onnx_view_reshape(meg_onnx_build *b, const meg_onnx_node *n,
                                 const meg_onnx_list *to);

int meg_onnx_view_dims(const meg_onnx_view *v, int64_t out[MEG_ONNX_RANK]); /* the rank */

#endif
