/* An ONNX file under construction, and how parts are put into it. */
#ifndef MEG_IMPORT_ONNX_WRITE_PUT_H
#define MEG_IMPORT_ONNX_WRITE_PUT_H

#include "graph/op.h"
#include "import/onnx/wire/model.h"

typedef struct meg_onnx_out {
    meg_error *error;
    meg_pool *pool;
    const char *path;
    const meg_graph *graph;
    meg_wire wire;       /* the graph */
    const char **name;   /* of each value in the file */
    bool *written;       /* parameters, states and fixed values that are in it */
    bool *reshaped;      /* those with other extents than files of weights have */
    int weights, *order; /* the same, in the order of their data */
    int64_t offset;      /* in the file with external data */
    const char *data;    /* its name; NULL: weights are inside */
    int extras;          /* constants made so far */
    int opset;
} meg_onnx_out;

typedef struct meg_onnx_made { /* a node of the file */
    const char *op;
    int inputs;
    const char *in[MEG_INPUTS];
    const char *out, *second; /* NULL: it has one output */
    meg_wire attributes;      /* fields of the NodeProto */
    bool back;                /* its output has the last axis, which goes to the front behind it */
} meg_onnx_made;

void meg_made_int(meg_onnx_made *m, const char *name, int64_t value);
void meg_made_real(meg_onnx_made *m, const char *name, double value);
void meg_made_text(meg_onnx_made *m, const char *name, const char *value);
void meg_made_ints(meg_onnx_made *m, const char *name, int count, const int64_t at[]);
void meg_made_note(meg_onnx_made *m, const char *key, const char *value);

/* A transpose between the file's order and ours: the last axis to the front (place 1), or back. out
 * NULL: a name is made. Returns the name of its output. */
const char *meg_onnx_put_turned(meg_onnx_out *o, const meg_node *v, const char *x, const char *out,
                                bool to_front);

/* Adds an entry of texts: a note, a place in another file. */
void meg_onnx_put_entry(meg_wire *w, uint32_t number, const char *key, const char *value);

/* Appends the node. */
void meg_onnx_put(meg_onnx_out *o, meg_onnx_made *m, const char *name);

/* Constants that are not weights; return their names. Of whole numbers, count 0: a single one. */
const char *meg_onnx_put_wholes(meg_onnx_out *o, const meg_node *v, int count, const int64_t at[]);
const char *meg_onnx_put_reals(meg_onnx_out *o, const meg_node *v, int count, const float at[]);
const char *meg_onnx_put_real(meg_onnx_out *o, const meg_node *v, double value);

/* A weight with other extents than its own, of the same numbers (a slope per channel). */
void meg_onnx_put_weight(meg_onnx_out *o, int value, int rank, const int64_t dims[]);

/* Notes which operator the node is the last part of, so that it is read as such. */
void meg_onnx_note_own(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);

#endif
