/* The registry of optimizers: see optimizer.h. */
#include "ops/optimizer/optimizer.h"
#include "base/registry.h"

#include <string.h>

#define MEG_OPTIMIZER(name) extern const meg_optimizer meg_optimizer_##name;
#include "ops/optimizer/optimizers.def"
#undef MEG_OPTIMIZER

static const meg_optimizer *const table[] = {
#define MEG_OPTIMIZER(name) &meg_optimizer_##name,
#include "ops/optimizer/optimizers.def"
#undef MEG_OPTIMIZER
};

MEG_REGISTRY_AT(meg_optimizer, meg_optimizer_at, table)

MEG_REGISTRY_FIND(meg_optimizer, meg_optimizer_find, meg_optimizer_at)

int meg_optimizer_states(const meg_optimizer *o, const void *settings)
{
    return o->used ? o->used(settings) : o->states;
}
