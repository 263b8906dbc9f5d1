/* Tensors of ONNX files, and the files that hold their numbers. */
#ifndef MEG_IMPORT_ONNX_WIRE_TENSOR_H
#define MEG_IMPORT_ONNX_WIRE_TENSOR_H

#include "import/onnx/wire/model.h"

const char *meg_onnx_type_name(int type); /* "float", ..; of any number */

/* Elements of a tensor: of whole types, false otherwise; of real types, NAN otherwise. */
bool meg_onnx_whole(const meg_onnx_tensor *t, int64_t i, int64_t *out);
double meg_onnx_number(const meg_onnx_tensor *t, int64_t i);

/* Maps a file for reading; it stays so until meg_onnx_unmap. The same path is mapped once. */
meg_status meg_onnx_map(meg_onnx_file *f, meg_error *e, const char *path, meg_bytes *out);
void meg_onnx_unmap(meg_onnx_file *f);

/* Reads a TensorProto; `out` points into the file or, where numbers are not stored as they lie in
 * memory, into the pool. */
meg_status meg_onnx_tensor_read(meg_onnx_file *f, meg_error *e, meg_bytes body,
                                meg_onnx_tensor *out);

#endif
