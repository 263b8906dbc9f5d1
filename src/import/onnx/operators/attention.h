/* Nodes that are attention together: see onnx_attention.c. */
#ifndef MEG_IMPORT_ONNX_OPERATORS_ATTENTION_H
#define MEG_IMPORT_ONNX_OPERATORS_ATTENTION_H

#include "import/onnx/build/build.h"

/* Fills b->attention; the nodes of a group but for its last are skipped. */
void meg_onnx_find_attention(meg_onnx_build *b);

/* Reads the group as one operator; not *done: its nodes are to be read one by one, first those that
 * wait for the last, by number; -1: no more. */
meg_status meg_onnx_read_attention(meg_onnx_build *b, const meg_onnx_attention *a, bool *done);
int meg_onnx_waiting(const meg_onnx_attention *a, int i);

#endif
