/* An ONNX file, opened and checked: nodes, tensors, inputs and outputs as they lie in the file
 * (onnx.ai/onnx/repo-docs/IR.html). Texts are spans of the mapped file, weights point into it or
 * into the files of external data beside it; nothing of them is copied.
 */
#ifndef MEG_IMPORT_ONNX_WIRE_MODEL_H
#define MEG_IMPORT_ONNX_WIRE_MODEL_H

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

typedef struct meg_onnx_tensor {
    meg_bytes name;
    int type;
    int rank; /* 0: one number */
    int64_t dims[MEG_ONNX_RANK];
    int64_t size;     /* elements; may be none */
    const void *data; /* little-endian, row-major, perhaps not aligned; lives as long as the file */
    bool mapped;      /* it lies in a mapped file, not in memory */
} meg_onnx_tensor;

typedef struct meg_onnx_node {
    meg_bytes op, domain, name, body;
    int inputs, outputs;
    meg_bytes *in, *out; /* an empty one: absent */
    bool subgraph;       /* has a graph among its attributes */
} meg_onnx_node;

typedef struct meg_onnx_port { /* an input or output of the graph */
    meg_bytes name;
    int type;                    /* 0: no tensor */
    int rank;                    /* -1: not said */
    int64_t dims[MEG_ONNX_RANK]; /* -1: any */
} meg_onnx_port;

typedef struct meg_onnx_info { /* of a value inside the graph: only those that have notes */
    meg_bytes name, body;
} meg_onnx_info;

typedef struct meg_onnx_file {
    char *path;
    meg_pool *pool;
    int64_t ir, opset;
    meg_bytes producer;
    meg_bytes graph;
    size_t nodes, tensors, inputs, outputs, infos;
    meg_onnx_node *node;
    meg_onnx_tensor *tensor;
    meg_onnx_port *input, *output;
    meg_onnx_info *info;
    size_t node_room, tensor_room, input_room, output_room, info_room;
    struct meg_onnx_map *map; /* of this file and of those with external data */
    size_t maps, map_room;
} meg_onnx_file;

#endif
