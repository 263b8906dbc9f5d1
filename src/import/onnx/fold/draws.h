/* Random masks of ONNX files: see draws.c. */
#ifndef MEG_IMPORT_ONNX_FOLD_DRAWS_H
#define MEG_IMPORT_ONNX_FOLD_DRAWS_H

#include "import/onnx/build/kinds.h"

/* Does the node read random numbers? Then it is read so. */
bool meg_onnx_has_draw(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_draw(meg_onnx_build *b, const meg_onnx_node *n);

/* Where they come from; ends with a row without op. */
extern const meg_onnx_row meg_onnx_draws[];

#endif
