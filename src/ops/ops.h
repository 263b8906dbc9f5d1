/* All operators, by name: for devices that have kernels of some. Others ask for facts (graph/op.h). */
#ifndef MEG_OPS_OPS_H
#define MEG_OPS_OPS_H

#include "graph/op.h"

#define MEG_OP(name) extern const meg_op meg_op_##name;
#include "ops/ops.def"
#undef MEG_OP

#endif
