/* Random masks of ONNX files: see onnx_draws.c. */
#ifndef MEG_IMPORT_ONNX_FOLD_DRAWS_H
#define MEG_IMPORT_ONNX_FOLD_DRAWS_H

#include "import/onnx/fold/fold.h"

/* Does the node read random numbers? Then it is read so. */
bool meg_onnx_has_draw(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_draw(meg_onnx_build *b, const meg_onnx_node *n);

#endif
