/* Shards: what of a weight a rank holds that shares it with others (zero=; Rajbhandari et al., ZeRO, SC
 * 2020). Each of a team has an even part along the weight's first axis.
 *
 *     zero=   weight   gradient   states
 *     1       whole    whole      part     each updates its part; then the parts are gathered
 *     3       part     part       part     forward and backward fetch the whole where they need it
 *
 *     fetch      COPY part to whole; REDUCE whole, the gathering half     a few kernels ahead
 *     gradient   REDUCE whole, the summing half; ADD whole's part to part
 *
 * Under zero=3 the ranks of a team must fetch in step: weights that several stages or segments
 * read, or both directions of a pipeline, are cut as under zero=1.
 */
#include "plan/lower/lowering.h"

/* ---- updates ---- */

static void update_slots(meg_lower *l, int value, int weight, int gradient)
{
    const meg_plan *p = l->plan;
    meg_instr i = meg_lower_instr(MEG_UPDATE, NULL, MEG_FORWARD);
    const meg_slot w = l->out->slot[weight];
    int states = meg_optimizer_states(p->optimizer, p->settings);
    i.slot[MEG_X] = weight;
    i.slot[MEG_X + 1] = gradient;
    i.slot[MEG_X + 2] = l->scalars;
    i.written = MEG_BIT(MEG_X);
    for (int k = 0; k < states; k++) {
        i.slot[MEG_AUX + k] = meg_lower_held(l, value, MEG_ROLE_STATE, k, w.format, w.bytes);
        i.written |= MEG_BIT(MEG_AUX + k);
    }
    meg_lower_price(l, &i);
    meg_lower_emit(l, &i);
}

/* Some elements of a plain slot, that lie side by side. */
static int piece_of(meg_lower *l, int slot, int64_t first, int64_t count)
{
    meg_slot s = l->out->slot[slot];
    int64_t each = meg_dtype_bytes(s.dtype);
    s.offset += first * each;
    s.bytes = count * each;
    s.box = meg_box_of(1, count, 1, 1, 1);
    return meg_lower_slot(l, s);
}

/* Each updates its part, and gets the others'. */
static void update_part(meg_lower *l, int value, int gradient)
{
    int weight = l->home[value];
    meg_box all = l->out->box[value], shard = meg_lower_shard_box(l, value, all);
    int64_t count = meg_box_size(&shard), first = count ? meg_box_at(&all, shard.lo) : 0;
    if (count)
        update_slots(l, value, piece_of(l, weight, first, count),
                     piece_of(l, gradient, first, count));
    meg_lower_all_gather(l, weight, &l->sharers[value],
                         meg_tag_of_value(l->entry, value, MEG_TAG_GATHER_UPDATED));
}

/* The gradient is the part's, or the whole sum's. */
static void update_scattered(meg_lower *l, int value, int gradient)
{
    meg_box shard = meg_lower_shard_box(l, value, l->out->box[value]);
    if (!meg_box_equal(&l->out->slot[gradient].box, &shard))
        gradient = meg_lower_cut(l, gradient, &shard, MEG_FORMAT_PLAIN);
    update_slots(l, value, meg_lower_shard(l, value), gradient);
}

void meg_lower_update(meg_lower *l, int value, int gradient)
{
    if (meg_lower_scattered(l, value)) update_scattered(l, value, gradient);
    else if (meg_lower_parted(l, value)) update_part(l, value, gradient);
    else update_slots(l, value, l->home[value], gradient);
}

/* ---- weights come and go ---- */

static int64_t whole_bytes(const meg_lower *l, int value)
{
    meg_dtype type = meg_entry_dtype(l->entry, l->g->value[value].dtype);
    return meg_box_size(&l->out->box[value]) * meg_dtype_bytes(type);
}

/* Of all scattered weights that the station reads. */
static int64_t largest(const meg_lower *l)
{
    int64_t most = 0;
    for (int i = 0; i < l->g->values; i++) {
        if (!meg_lower_scattered(l, i) || l->out->position[l->read_in[i]] < 0) continue;
        int64_t bytes = whole_bytes(l, i);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Bytes of the scattered weights that a pass of a node reads; `fetch`: they are fetched. */
static int64_t weights_of(meg_lower *l, const meg_node *v, meg_pass pass, bool fetch)
{
    meg_mask reads = meg_node_reads(v, pass);
    int64_t bytes = 0;
    for (int k = 0; k < v->inputs; k++) {
        if (!(reads & MEG_BIT(MEG_X + k)) || !meg_lower_scattered(l, v->in[k])) continue;
        bytes += whole_bytes(l, v->in[k]);
        if (fetch) meg_lower_get(l, v->in[k], MEG_FORMAT_PLAIN, 0, v);
    }
    return bytes;
}

/* Also of what is recomputed for it. */
static int64_t weights_back(meg_lower *l, const meg_node *v, meg_pass pass, bool fetch)
{
    meg_mask reads = meg_node_reads(v, pass);
    int64_t bytes = 0;
    if (!meg_lower_wants(l, v, pass)) return 0;
    for (int k = 0; k < v->inputs; k++) {
        int x = v->in[k];
        if (reads & MEG_BIT(MEG_X + k) && l->replay[x] && l->home[x] < 0)
            bytes += weights_of(l, &l->g->node[l->g->value[x].maker], MEG_REPLAY, fetch);
    }
    return bytes + weights_of(l, v, pass, fetch);
}

static int64_t weights(meg_lower *l, const meg_node *v, bool back, bool fetch)
{
    if (!back) return weights_of(l, v, l->entry->train ? MEG_FORWARD : MEG_EVAL, fetch);
    int64_t bytes = weights_back(l, v, MEG_WEIGHT, fetch);
    return bytes + weights_back(l, v, MEG_BACKWARD, fetch);
}

/* A rank without samples has no kernels that wait for what it fetched: it would wait where the memory is
 * used again, perhaps for a rank that fetches less ahead and waits for a sum of this rank. */
void meg_lower_ahead(meg_lower *l, int node, bool back)
{
    enum {
        AHEAD = 2
    }; /* nodes; with a convolution, its norm and the next convolution */
    int count = 0, step = back ? -1 : 1;
    int64_t ahead = 0;
    if (l->plan->options.zero != MEG_ZERO_ALL || l->entry->idle) return;
    for (int i = node; i >= 0 && i < l->g->nodes && count <= AHEAD; i += step) {
        if (!l->mine[i]) continue;
        int64_t bytes = weights(l, &l->g->node[i], back, false);
        if (i != node) ahead += bytes;
        if (ahead > l->plan->options.bucket) return;
        weights(l, &l->g->node[i], back, true);
        count += bytes > 0;
    }
}

/* One scratch for all, so that memory does not grow with the number of weights. */
int meg_lower_sum(meg_lower *l, int value, int slot)
{
    if (l->holders[slot] > 1) { /* others read it */
        l->holders[slot]--;
        slot = meg_lower_copy(l, slot, MEG_FORMAT_PLAIN, 0, NULL);
        l->holders[slot]++;
    }
    if (l->summing < 0) l->summing = meg_lower_reduce_scratch(l, largest(l));
    meg_instr r = meg_lower_reduce_in(l, slot, l->summing, &l->sharers[value],
                                      meg_tag_of_value(l->entry, value, MEG_TAG_GRADIENT));
    r.half = MEG_HALF_SCATTER;
    meg_lower_emit(l, &r);
    return slot;
}
