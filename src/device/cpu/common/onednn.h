/* oneDNN, as our kernels use it: tensors by format and shape, primitives that are never its
 * reference code, scratch memory that comes with the launch. Only this file includes dnnl.h.
 *
 * A tensor with one spatial axis is one with two, h = 1: the bytes are the same, and oneDNN has
 * more and faster kernels for images than for lines.
 */
#ifndef MEG_DEVICE_CPU_COMMON_ONEDNN_H
#define MEG_DEVICE_CPU_COMMON_ONEDNN_H

#include "device/cpu/common/cpu.h"

#include <dnnl.h>

typedef struct meg_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch is the user's */
    int threads;
} meg_onednn;

/* What oneDNN splits work by is the team of the calling thread, when a primitive is made and when
 * it runs: both must be ours. */
int meg_onednn_enter(const meg_onednn *o); /* returns what _leave wants */
void meg_onednn_leave(int team);

typedef struct meg_onednn_shape { /* n c [d] h w; weights [g] k c [d] h w */
    int axes;
    bool grouped;
    dnnl_dims_t at;
} meg_onednn_shape;

/* `groups` 0: no axis for them. `deep`: with d, which must be 1 without. */
meg_onednn_shape meg_onednn_shape_of(const meg_box *b, int64_t groups, bool deep);

/* False: oneDNN has no name for this format with these axes. */
bool meg_onednn_desc(const meg_onednn_shape *s, meg_format f, dnnl_memory_desc_t *out);
dnnl_memory_desc_t meg_onednn_any(const meg_onednn_shape *s);
bool meg_onednn_format(const meg_onednn_shape *s, const dnnl_memory_desc_t *desc, meg_format *out);
int64_t meg_onednn_bytes(const meg_onednn_shape *s, meg_format f); /* -1: no such format */

/* The first implementation that is not reference code and that `accept` likes (NULL: any); NULL if
 * there is none. */
typedef bool meg_onednn_accept(const_dnnl_primitive_desc_t pd, void *context);
dnnl_primitive_desc_t meg_onednn_find(const meg_onednn *o, const_dnnl_op_desc_t what,
                                      meg_onednn_accept *accept, void *context);
dnnl_primitive_desc_t meg_onednn_reorder(const meg_onednn *o, const dnnl_memory_desc_t *from,
                                         const dnnl_memory_desc_t *to);
const char *meg_onednn_impl(const_dnnl_primitive_desc_t pd);
int64_t meg_onednn_scratch(const_dnnl_primitive_desc_t pd); /* bytes */

/* A step: a primitive and where its arguments lie, among the operands of a launch. */
enum {
    MEG_ONEDNN_ARGS = 6
};

typedef struct meg_onednn_place {
    int arg;        /* DNNL_ARG_... */
    int operand;    /* MEG_X ... */
    int64_t offset; /* bytes */
} meg_onednn_place;

typedef struct meg_onednn_step {
    dnnl_primitive_t primitive; /* NULL: nothing to do */
    int count;
    meg_onednn_place place[MEG_ONEDNN_ARGS];
    dnnl_exec_arg_t arg[MEG_ONEDNN_ARGS];
} meg_onednn_step;

/* Set `place` and `count` before. */
bool meg_onednn_step_make(const meg_onednn *o, const_dnnl_primitive_desc_t pd,
                          meg_onednn_step *step);
void meg_onednn_step_run(const meg_onednn *o, meg_onednn_step *step, void *const at[MEG_OPERANDS]);
void meg_onednn_step_clear(meg_onednn_step *step);

/* Ends the process with a message if a launch failed: it is no user's error, and nothing after it
 * would be right. */
void meg_onednn_must(dnnl_status_t status);

#endif
