/* What a rank has of values and nodes where replicas share the samples of a micro-batch.
 *
 *     n along the samples     cut: the rank has its own
 *     summed over samples     partial: every rank has a share (statistics, losses, counts)
 *     neither                 copied: weights, and what is made of them alone
 */
#include "plan/program.h"

static bool whole(const meg_entry *e)
{
    return e->first == 0 && e->end == e->graph->batch;
}

static bool reads_samples(const meg_entry *e, const meg_node *v)
{
    for (int k = 0; k < v->inputs; k++)
        if (e->sampled[v->in[k]]) return true;
    return false;
}

static void cut(const meg_entry *e, meg_box *b)
{
    b->lo[MEG_N] = e->first;
    b->hi[MEG_N] = e->end;
}

meg_work meg_entry_work(const meg_entry *e, const meg_node *v)
{
    meg_work w = meg_op_whole(e->graph, v);
    if (whole(e)) return w;
    if (e->sampled[v->out[0]]) cut(e, &w.out);
    else if (reads_samples(e, v) && meg_extent(&w.sum, MEG_N) == e->graph->batch) cut(e, &w.sum);
    return w;
}

meg_box meg_entry_box(const meg_entry *e, int value)
{
    meg_box b = e->graph->value[value].shape;
    if (!whole(e) && e->sampled[value]) cut(e, &b);
    return b;
}

bool meg_entry_partial(const meg_entry *e, int value)
{
    int maker = e->graph->value[value].maker;
    if (whole(e) || maker < 0 || e->sampled[value]) return false;
    return reads_samples(e, &e->graph->node[maker]);
}
