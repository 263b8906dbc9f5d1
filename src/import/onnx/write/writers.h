/* Operators as ONNX writes them: the table that write.c goes by. */
#ifndef MEG_IMPORT_ONNX_WRITE_WRITERS_H
#define MEG_IMPORT_ONNX_WRITE_WRITERS_H

#include "import/onnx/write/put.h"

/* One row per operator of ours. */
typedef struct meg_onnx_writer {
    const char *op, *onnx;
    /* Adds attributes and inputs; `m` comes with the node's own. May put nodes before it. */
    meg_status (*write)(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
} meg_onnx_writer;

const meg_onnx_writer *meg_onnx_writer_of(const char *op); /* NULL: it cannot be written */

/* The attribute that users write by this name. */
const void *meg_onnx_word(const meg_node *v, const char *name);

#define MEG_ONNX(name) extern const meg_onnx_writer meg_onnx_writes_##name;
#include "import/onnx/operators.def"
#undef MEG_ONNX

/* Operators of several nodes: parts.c. */
meg_status meg_onnx_write_attention(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_adaptive(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_gather(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_gru(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_lstm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_lift(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_roll(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_take(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_spectralnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_weightnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);
meg_status meg_onnx_write_unpool(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m);

#endif
