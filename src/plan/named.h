/* Plans that have names: published shapes, as words for a start. What a user says besides counts
 * more. They are rows of plans.def.
 */
#ifndef MEG_PLAN_NAMED_H
#define MEG_PLAN_NAMED_H

#include "base/pool.h"
#include "base/status.h"

#include <stddef.h>

typedef struct meg_named_plan {
    const char *name;
    int ranks; /* of a replica; a multiple of them has replicas */
    const char *words, *doc, *paper;
} meg_named_plan;

const meg_named_plan *meg_named_plan_at(int i);              /* NULL past the end */
const meg_named_plan *meg_named_plan_find(const char *name); /* NULL: there is none */

/* "hyfi-5 hyfi-8 ...", cut off where it is too long. */
void meg_named_plan_names(char *out, size_t size);

/* Its words and the given ones, of which a word that both have is taken. */
const char *meg_named_plan_join(const meg_named_plan *n, meg_pool *pool, const char *given);

#endif
