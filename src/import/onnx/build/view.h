/* Views: how the axes of the file lie in a value of the graph. Where the batch is not the first axis of
 * the file, there is no value that looks as the file has it; and where axes are only moved or split, none
 * is made until someone asks for it. How operators are read whose inputs are views is the business of
 * operators/through_views.c.
 */
#ifndef MEG_IMPORT_ONNX_BUILD_VIEW_H
#define MEG_IMPORT_ONNX_BUILD_VIEW_H

#include "import/onnx/build/build.h"

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
    bool lazy; /* becomes a value when one is asked for, if the batch is the first axis then */
} meg_onnx_view;

/* A view of all that a symbol is. */
meg_onnx_view meg_onnx_view_of(const meg_onnx_build *b, const meg_onnx_symbol *s);

/* Binds the node's output. */
meg_status meg_onnx_view_bind(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v);

/* The value with its atoms in this order, the batch first, and these extents. */
meg_status meg_onnx_view_arrange(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v,
                                 const int order[], meg_onnx_list *dims, int *out);

/* Could the view be a value? Then it becomes one. */
bool meg_onnx_is_lazy(const meg_onnx_view *v);
meg_status meg_onnx_settle(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s);

int meg_onnx_view_batch(const meg_onnx_view *v); /* the axis that has the batch; -1: none */
bool meg_onnx_is_alone(
    const meg_onnx_view *v); /* none has it: data of one sample, a lifted weight */
int meg_onnx_view_dims(const meg_onnx_view *v, int64_t out[MEG_ONNX_RANK]); /* the rank */
int64_t meg_onnx_view_extent(const meg_onnx_view *v, int axis);

/* Atoms of the axes [from, to), without the batch; returns how many. */
int meg_onnx_view_atoms(const meg_onnx_view *v, int from, int to, int out[]);

/* Other axes over the same numbers (false: they do not fit), or the same in another order. */
bool meg_onnx_view_split(meg_onnx_view *v, const meg_onnx_list *to);
void meg_onnx_view_turn(meg_onnx_view *v, const int64_t perm[]);

/* Of Transpose and Reshape that move or join the batch. */
meg_status meg_onnx_view_transpose(meg_onnx_build *b, const meg_onnx_node *n, const int64_t perm[]);
meg_status meg_onnx_view_reshape(meg_onnx_build *b, const meg_onnx_node *n,
                                 const meg_onnx_list *to);

/* Says that the batch cannot be treated so. */
meg_status meg_onnx_refuse_batch(const meg_onnx_build *b, const meg_onnx_node *n);

#endif
