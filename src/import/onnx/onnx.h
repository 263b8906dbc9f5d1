/* ONNX in and out: models of other frameworks become graphs that train, graphs with their weights
 * become files that others run. Operator sets 13 and later are read, 20 is written; docs/onnx.md
 * says which operators there are and how they do in ONNX's own tests.
 */
#ifndef MEG_IMPORT_ONNX_ONNX_H
#define MEG_IMPORT_ONNX_ONNX_H

#include "import/onnx/build/options.h"
#include "import/onnx/write/write.h"

extern const meg_param meg_onnx_params[];

/* The graph of a file, for one sample unless the file fixes the batch. Its weights start with the
 * file's, which stays open as long as the graph lives. */
meg_status meg_onnx_load(meg_error *e, const char *path, const char *options,
                         const meg_onnx_listener *listener, meg_graph **out);

/* The i-th ONNX operator that can be read; NULL past the end. */
const char *meg_onnx_operator(int i);

/* How much of an operator can be read, where it is not all; "": all that leaves the batch alone. */
const char *meg_onnx_claim(const char *op);

#endif
