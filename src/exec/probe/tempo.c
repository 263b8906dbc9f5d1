/* The tempo of steps: see tempo.h. */
#include "exec/probe/tempo.h"
#include "exec/meters/drift.h"
#include "exec/meters/median.h"

#include <stdlib.h>

int meg_tempo_keep(const meg_tempo *p, int steps, bool *keep)
{
    int kept = 0;
    for (int i = 0; i < steps; i++) {
        int before = i / p->every, behind = before + 1;
        bool same = p->turn <= 0 ||
                    (behind < p->looks && meg_drift_same(p->turn, p->look[before]) &&
                     meg_drift_same(p->turn, p->look[behind]));
        if (keep) keep[i] = same;
        kept += same;
    }
    return kept;
}

/* Look k stands before the steps k * every and on, and behind those before it. */
static bool beside(const meg_tempo *p, int k, int steps, const bool *keep)
{
    int begin = (k - 1) * p->every, end = (k + 1) * p->every;
    for (int i = begin < 0 ? 0 : begin; i < end && i < steps; i++)
        if (keep[i]) return true;
    return false;
}

double meg_tempo_quicker(const meg_tempo *p, int steps, const bool *keep)
{
    if (p->turn <= 0 || p->looks == 0) return 1;
    double *look = malloc((size_t)p->looks * sizeof *look);
    size_t count = 0;
    if (!look) abort();
    for (int k = 0; k < p->looks; k++)
        if (beside(p, k, steps, keep)) look[count++] = p->look[k];
    double now = count ? meg_median(look, count) : 0;
    free(look);
    return now > 0 ? p->turn / now : 1;
}
