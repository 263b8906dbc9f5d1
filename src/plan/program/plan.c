/* The plan of a rank: see plan.h. */
#include "plan/program/plan.h"

int64_t meg_plan_base(const meg_plan *p, meg_region region)
{
    int64_t at = 0;
    for (int r = 0; r < (int)region; r++)
        at = meg_aligned(at + p->bytes[r]);
    return at;
}
