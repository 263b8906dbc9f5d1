/* Memory that was taken: see taken.h. */
#include "train/step/taken.h"

#include <stdlib.h>
#include <sys/resource.h>

/* The rank whose arena differs most from the plan, or else the one that needs most. */
static bool worse(const meg_taken *a, const meg_taken *b)
{
    int64_t x = llabs(a->touched - a->planned), y = llabs(b->touched - b->planned);
    return x != y ? x > y : a->planned > b->planned;
}

meg_status meg_taken_gather(meg_comm *c, meg_error *e, meg_taken *m)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    int ranks = meg_comm_size(c);
    m->rss = (int64_t)usage.ru_maxrss * 1024;
    if (ranks == 1) return MEG_OK;
    meg_taken *all = calloc((size_t)ranks, sizeof *all);
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory for a report of %d ranks", ranks);
    meg_status status = meg_comm_gather(c, e, m, sizeof *m, all);
    int64_t rss = 0;
    for (int r = 0; r < ranks && status == MEG_OK; r++) {
        if (r == 0 || worse(&all[r], m)) *m = all[r];
        if (all[r].rss > rss) rss = all[r].rss;
    }
    m->rss = rss;
    free(all);
    return status;
}
