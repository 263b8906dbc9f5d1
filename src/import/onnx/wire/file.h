/* An ONNX file, opened and checked: nodes, tensors, inputs and outputs as they lie in the file
 * (onnx.ai/onnx/repo-docs/IR.html). Texts are spans of the mapped file, weights point into it or
 * into the files of external data beside it; nothing of them is copied. What onnx_read.c makes of
 * all this is another matter.
 */
#ifndef MEG_IMPORT_ONNX_WIRE_FILE_H
#define MEG_IMPORT_ONNX_WIRE_FILE_H

#include "base/pool.h"
#include "import/onnx/wire/proto.h"

enum {
    MEG_ONNX_RANK = 8
};

typedef enum meg_onnx_type { /* TensorProto.DataType */
    MEG_ONNX_FLOAT = 1,
    MEG_ONNX_INT32 = 6,
    MEG_ONNX_INT64 = 7,
    MEG_ONNX_BOOL = 9,
    MEG_ONNX_FLOAT16 = 10,
    MEG_ONNX_DOUBLE = 11,
    MEG_ONNX_BFLOAT16 = 16
} meg_onnx_type;

const char *meg_onnx_type_name(int type); /* "float", ..; of any number */

typedef struct meg_onnx_tensor {
    meg_span name;
    int type;
    int rank; /* 0: one number */
    int64_t dims[MEG_ONNX_RANK];
    int64_t size;     /* elements; may be none */
    const void *data; /* little-endian, row-major, perhaps not aligned; lives as long as the file */
    bool mapped;      /* it lies in a mapped file, not in memory */
} meg_onnx_tensor;

typedef struct meg_onnx_node {
    meg_span op, domain, name, body;
    int inputs, outputs;
    meg_span *in, *out; /* an empty one: absent */
    bool subgraph;      /* has a graph among its attributes */
} meg_onnx_node;

typedef struct meg_onnx_port { /* an input or output of the graph */
    meg_span name;
    int type;                    /* 0: no tensor */
    int rank;                    /* -1: not said */
    int64_t dims[MEG_ONNX_RANK]; /* -1: any */
} meg_onnx_port;

typedef struct meg_onnx_info { /* of a value inside the graph: only those that have notes */
    meg_span name, body;
} meg_onnx_info;

typedef struct meg_onnx_file {
    char *path;
    meg_pool *pool;
    int64_t ir, opset;
    meg_span producer;
    meg_span graph;
    size_t nodes, tensors, inputs, outputs, infos;
    meg_onnx_node *node;
    meg_onnx_tensor *tensor;
    meg_onnx_port *input, *output;
    meg_onnx_info *info;
    size_t node_room, tensor_room, input_room, output_room, info_room;
    struct meg_onnx_map *map; /* of this file and of those with external data */
    size_t maps, map_room;
} meg_onnx_file;

meg_status meg_onnx_open(meg_error *e, const char *path, meg_onnx_file **out);
void meg_onnx_close(meg_onnx_file *f);

/* Attributes of a node. Absent ones leave `out` as it is. Lists: how many there are, of which at
 * most `room` are set; -1: absent. */
int64_t meg_onnx_int(const meg_onnx_node *n, const char *name, int64_t absent);
double meg_onnx_real(const meg_onnx_node *n, const char *name, double absent);
meg_span meg_onnx_text(const meg_onnx_node *n, const char *name); /* empty: absent */
int meg_onnx_ints(const meg_onnx_node *n, const char *name, int64_t out[], int room);
int meg_onnx_floats(const meg_onnx_node *n, const char *name, float out[], int room);
bool meg_onnx_has(const meg_onnx_node *n, const char *name);
/* The i-th attribute's name; false past the end. */
bool meg_onnx_attribute(const meg_onnx_node *n, int i, meg_span *name);
meg_status meg_onnx_value(meg_onnx_file *f, meg_error *e, const meg_onnx_node *n,
                          meg_onnx_tensor *out); /* the "value" of a Constant */

/* Of the metadata_props of a node, of a value, of the graph; empty: there is none. */
meg_span meg_onnx_note(const meg_onnx_node *n, const char *key);
meg_span meg_onnx_info_note(const meg_onnx_info *i, const char *key);
meg_span meg_onnx_graph_note(const meg_onnx_file *f, const char *key);

/* Elements of a tensor: of whole types, false otherwise; of real types, NAN otherwise. */
bool meg_onnx_whole(const meg_onnx_tensor *t, int64_t i, int64_t *out);
double meg_onnx_number(const meg_onnx_tensor *t, int64_t i);

/* A number of the network's code, as it was before the file made a float of it: a decimal of few digits,
 * or a root of a whole number (scales of attention). */
double meg_onnx_meant(const meg_onnx_tensor *t, int64_t i);

#endif
