/* The registry of operators: see graph/op.h. */
#include "base/registry.h"
#include "ops/ops.h"

static const meg_op *const table[] = {
#define MEG_OP(name) &meg_op_##name,
#include "ops/ops.def"
#undef MEG_OP
};

MEG_REGISTRY_AT(meg_op, meg_op_at, table)

MEG_REGISTRY_FIND(meg_op, meg_op_find, meg_op_at)

MEG_REGISTRY_NAME(meg_op_name, meg_op_at)
