/* The row of an ONNX operator. */
#ifndef MEG_IMPORT_ONNX_ROWS_H
#define MEG_IMPORT_ONNX_ROWS_H

#include "import/onnx/build/build.h"

const meg_onnx_row *meg_onnx_row_of(const meg_onnx_node *n); /* NULL: there is none */

#endif
