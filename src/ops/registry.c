/* The registry of operators: see graph/op.h. */
#include "ops/ops.h"

#include <string.h>

static const meg_op *const table[] = {
#define MEG_OP(name) &meg_op_##name,
#include "ops/ops.def"
#undef MEG_OP
};

const meg_op *meg_op_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? table[i] : NULL;
}

const meg_op *meg_op_find(const char *name)
{
    for (int i = 0; meg_op_at(i); i++)
        if (strcmp(meg_op_at(i)->name, name) == 0) return meg_op_at(i);
    return NULL;
}

const char *meg_op_name(int i)
{
    return meg_op_at(i) ? meg_op_at(i)->name : NULL;
}
