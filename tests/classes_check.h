/* Classes of ranks, held against the programs of all ranks: those of one class are equal but for peers,
 * teams and places of boxes; a plan that is turned to a rank is the one made for it. */
#ifndef TESTS_CLASSES_CHECK_H
#define TESTS_CLASSES_CHECK_H

#include "canonical.h"
#include "plan/classes.h"

#include <stdlib.h>

static inline uint64_t classes_hash(const meg_plan *p, bool loose)
{
    canonical c = {.loose = loose};
    canonical_plan(&c, p);
    return meg_hash_word(c.program, c.tags);
}

/* False: it was said what is wrong. `p`: of any rank; it is turned. */
static inline bool classes_agree(const char *name, meg_plan *p, const uint64_t strict[],
                                 const uint64_t loose[])
{
    meg_error e;
    meg_classes *c = meg_classes_new(p);
    bool good = true;
    for (int r = 0; r < c->ranks && good; r++) {
        int other = c->last[c->of[r]];
        good = meg_plan_turn(p, &e, r) == MEG_OK && classes_hash(p, false) == strict[r];
        if (!good) printf("%s: turned to rank %d, the plan is another\n", name, r);
        if (good && loose[r] != loose[other]) {
            printf("%s: ranks %d and %d are of one class, but have other programs\n", name, r,
                   other);
            good = false;
        }
    }
    meg_classes_free(c);
    return good;
}

/* How many kinds of programs there are: as few classes would do. */
static inline int classes_least(const uint64_t loose[], int ranks)
{
    int kinds = 0;
    for (int r = 0; r < ranks; r++) {
        bool known = false;
        for (int k = 0; k < r; k++)
            known = known || loose[k] == loose[r];
        kinds += !known;
    }
    return kinds;
}

#endif
