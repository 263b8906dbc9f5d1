/* Kinds of initializers: which numbers of a file are trained. */
#ifndef MEG_IMPORT_ONNX_BUILD_KINDS_H
#define MEG_IMPORT_ONNX_BUILD_KINDS_H

#include "import/onnx/build/build.h"

/* ---- kinds.c ---- */

/* Numbers that are trained, as the file has it or by rule; buffers that files of weights have. */
bool meg_onnx_is_weight(const meg_onnx_symbol *s);
bool meg_onnx_is_buffer(const meg_onnx_symbol *s);

bool meg_onnx_is_initializer(const meg_onnx_symbol *s); /* NULL is none */
bool meg_onnx_nameless(meg_bytes s); /* what PyTorch's exporters call the numbers they computed */

bool meg_onnx_is_fused(const meg_onnx_node *n); /* PyTorch's optimizer noted a batch norm inside */

/* A constant beside data, of which only a name says that it is trained. */
void meg_onnx_doubt(meg_onnx_build *b, meg_onnx_symbol *s);

/* ---- how they are found ---- */

/* What the file says of its initializers, once it is known what is needed; what of it the user wants
 * otherwise, and what has to be told of them, when the graph is there: initializers.c. */
meg_status meg_onnx_find_kinds(meg_onnx_build *b);
meg_status meg_onnx_choose(meg_onnx_build *b);
void meg_onnx_tell_kinds(meg_onnx_build *b);

/* The same of files of PyTorch: torch.c. */
meg_status meg_onnx_read_exported(meg_onnx_build *b, meg_bytes signature);
void meg_onnx_read_script(meg_onnx_build *b);

/* Initializers of which nothing is said and that can have no gradient are buffers: smooth.c. */
void meg_onnx_find_smooth(meg_onnx_build *b);

#endif
