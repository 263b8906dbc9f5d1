/* Constants computed while a file is read: see fold.c. */
#ifndef MEG_IMPORT_ONNX_FOLD_FOLD_H
#define MEG_IMPORT_ONNX_FOLD_FOLD_H

#include "import/onnx/build/kinds.h"

/* Can the node be computed now? Then its first output becomes a constant. */
bool meg_onnx_folds(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_fold(meg_onnx_build *b, const meg_onnx_node *n);

/* The same of a weight, which the caller keeps one; of any size. */
meg_status meg_onnx_fold_weight(meg_onnx_build *b, const meg_onnx_node *n);

/* Resolves 0 and -1 of a new shape; false: it does not fit. */
bool meg_onnx_resolve(const int64_t from[], int rank, bool zeros, meg_onnx_list *to);

/* The extents that Reshape, Flatten, Squeeze or Unsqueeze give a tensor. */
meg_status meg_onnx_new_dims(const meg_onnx_build *b, const meg_onnx_node *n,
                             const meg_onnx_tensor *t, int64_t dims[MEG_ONNX_RANK], int *rank);

typedef struct meg_onnx_computing { /* an operator of numbers: numbers.c */
    const char *op;
    int operands;
    bool compares; /* its result is whole, whatever its inputs are */
    bool reals;    /* the other way round */
    double (*r)(double a, double c);
    bool (*i)(int64_t a, int64_t c, int64_t *out); /* false: no number */
} meg_onnx_computing;

extern const meg_onnx_computing meg_onnx_computings[]; /* ends with a row without op */

#endif
