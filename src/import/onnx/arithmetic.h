/* Arithmetic of trained weights: see arithmetic.c. */
#ifndef MEG_IMPORT_ONNX_ARITHMETIC_H
#define MEG_IMPORT_ONNX_ARITHMETIC_H

#include "import/onnx/build/build.h"

/* Is the node arithmetic of constants some of which are trained? Then its output is noted so. */
bool meg_onnx_waits(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_wait(meg_onnx_build *b, const meg_onnx_node *n);

/* Does the node read such an output? Then it is read so, or refused. */
bool meg_onnx_has_arithmetic(const meg_onnx_build *b, const meg_onnx_node *n);
meg_status meg_onnx_read_arithmetic(meg_onnx_build *b, const meg_onnx_node *n);

#endif
