/* The registry of allreduce algorithms, and what they share: see allreduce.h. */
#include "comm/allreduce/allreduce.h"
#include "base/registry.h"

#include <string.h>

static const meg_allreduce_kind *const table[] = {
#define MEG_ALLREDUCE(id) &meg_allreduce_##id,
#include "comm/allreduce/allreduce.def"
#undef MEG_ALLREDUCE
};

MEG_REGISTRY_AT(meg_allreduce_kind, meg_allreduce_at, table)

MEG_REGISTRY_FIND(meg_allreduce_kind, meg_allreduce_find, meg_allreduce_at)

meg_range meg_range_part(meg_range span, int parts, int i)
{
    int64_t each = span.count / parts, more = span.count % parts;
    return (meg_range){span.at + i * each + (i < more ? i : more), each + (i < more)};
}

int meg_allreduce_reach(const meg_allreduce *a)
{
    return a->groups && a->groups->count > 1;
}
