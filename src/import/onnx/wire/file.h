/* Opening an ONNX file, and what its nodes and notes say: see model.h for what there is. What read.c
 * makes of all this is another matter.
 */
#ifndef MEG_IMPORT_ONNX_WIRE_FILE_H
#define MEG_IMPORT_ONNX_WIRE_FILE_H

#include "import/onnx/wire/tensor.h"

meg_status meg_onnx_open(meg_error *e, const char *path, meg_onnx_file **out);
void meg_onnx_close(meg_onnx_file *f);

/* Attributes of a node. Absent ones leave `out` as it is. Lists: how many there are, of which at
 * most `room` are set; -1: absent. */
int64_t meg_onnx_int(const meg_onnx_node *n, const char *name, int64_t absent);
double meg_onnx_real(const meg_onnx_node *n, const char *name, double absent);
meg_bytes meg_onnx_text(const meg_onnx_node *n, const char *name); /* empty: absent */
int meg_onnx_ints(const meg_onnx_node *n, const char *name, int64_t out[], int room);
int meg_onnx_floats(const meg_onnx_node *n, const char *name, float out[], int room);
bool meg_onnx_has(const meg_onnx_node *n, const char *name);
/* The i-th attribute's name; false past the end. */
bool meg_onnx_attribute(const meg_onnx_node *n, int i, meg_bytes *name);
meg_status meg_onnx_value(meg_onnx_file *f, meg_error *e, const meg_onnx_node *n,
                          meg_onnx_tensor *out); /* the "value" of a Constant */

/* Of the metadata_props of a node, of a value, of the graph; empty: there is none. */
meg_bytes meg_onnx_note(const meg_onnx_node *n, const char *key);
meg_bytes meg_onnx_info_note(const meg_onnx_info *i, const char *key);
meg_bytes meg_onnx_graph_note(const meg_onnx_file *f, const char *key);

/* A number of the network's code, as it was before the file made a float of it: a decimal of few digits,
 * or a root of a whole number (scales of attention). */
double meg_onnx_meant(const meg_onnx_tensor *t, int64_t i);

#endif
