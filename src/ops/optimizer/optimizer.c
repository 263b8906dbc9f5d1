/* The registry of optimizers: see optimizer.h. */
#include "ops/optimizer/optimizer.h"

#include <string.h>

#define MEG_OPTIMIZER(name) extern const meg_optimizer meg_optimizer_##name;
#include "ops/optimizer/optimizers.def"
#undef MEG_OPTIMIZER

static const meg_optimizer *const table[] = {
#define MEG_OPTIMIZER(name) &meg_optimizer_##name,
#include "ops/optimizer/optimizers.def"
#undef MEG_OPTIMIZER
};

const meg_optimizer *meg_optimizer_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? table[i] : NULL;
}

const meg_optimizer *meg_optimizer_find(const char *name)
{
    for (int i = 0; meg_optimizer_at(i); i++)
        if (strcmp(meg_optimizer_at(i)->name, name) == 0) return meg_optimizer_at(i);
    return NULL;
}

int meg_optimizer_states(const meg_optimizer *o, const void *settings)
{
    return o->used ? o->used(settings) : o->states;
}
