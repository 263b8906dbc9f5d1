/* Steps on batches that the caller has in memory.
 *
 * Each rank takes from the whole batch what its programs load. All ranks agree on the batch before any of them
 * begins: what is wrong on one rank is an error of all, and nothing was done.
 */
#include "base/clock.h"
#include "data/arrays.h"
#include "graph/op.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    TRAIN,
    EVAL,
    KINDS
};

struct meg_hand {
    meg_reading reading[KINDS];
    void **data[KINDS]; /* (wants) of a whole batch; NULL: nothing was given yet */
    meg_filled filled;
};

static void drop(struct meg_hand *h)
{
    for (int k = 0; k < KINDS; k++) {
        for (int i = 0; h->data[k] && i < h->reading[k].count; i++)
            free(h->data[k][i]);
        free(h->data[k]);
    }
    meg_filled_free(&h->filled);
    free(h);
}

static int64_t largest(const meg_trainer *t, int kind)
{
    return t->plan->entry[kind == TRAIN ? MEG_ENTRY_TRAIN : MEG_ENTRY_EVAL].batch;
}

static meg_status make_hand(meg_trainer *t, int kind)
{
    meg_error *e = &t->ctx->error;
    if (!t->hand) {
        t->hand = calloc(1, sizeof *t->hand);
        MEG_CHECK(e, t->hand, MEG_ENOMEM, "no memory for a batch");
        t->drop_hand = drop;
        t->hand->reading[TRAIN] = meg_wants_of(t->plan, MEG_ENTRY_TRAIN, MEG_ENTRY_TRAIN_TAIL);
        t->hand->reading[EVAL] = meg_wants_of(t->plan, MEG_ENTRY_EVAL, MEG_ENTRY_EVAL);
    }
    if (t->hand->data[kind]) return MEG_OK;
    const meg_reading *r = &t->hand->reading[kind];
    t->hand->data[kind] = calloc((size_t)r->count + 1, sizeof(void *));
    MEG_CHECK(e, t->hand->data[kind], MEG_ENOMEM, "no memory for a batch");
    for (int i = 0; i < r->count; i++) { /* of the widest type */
        size_t numbers = (size_t)(largest(t, kind) * meg_wanted_numbers(&r->want[i])) + 1;
        t->hand->data[kind][i] = malloc(numbers * sizeof(double));
        MEG_CHECK(e, t->hand->data[kind][i], MEG_ENOMEM,
                  "no memory for a batch of %" PRId64 " samples", largest(t, kind));
    }
    return MEG_OK;
}

/* What the rank's programs load of samples `first` and on. */
static meg_status read_part(meg_trainer *t, int kind, const meg_dataset *d, int64_t first)
{
    meg_error *e = &t->ctx->error;
    meg_reading *r = &t->hand->reading[kind];
    int64_t rest = d->count - first, most = largest(t, kind);
    for (int i = 0; i < r->count; i++) {
        const meg_wanted *w = &r->want[i];
        int64_t each = meg_wanted_numbers(w) * meg_dtype_bytes(w->dtype);
        char *to = t->hand->data[kind][i];
        for (int64_t k = 0; k < rest && k < most && !meg_box_empty(&w->box); k++)
            if (w->of[k]) MEG_TRY(e, meg_wanted_read(d, e, w, first + k, to + k * each));
    }
    return MEG_OK;
}

typedef struct given { /* the caller's tensors */
    int kind;
    bool any; /* on this rank */
    meg_dataset set;
    int64_t samples;
} given;

/* What a rank can do wrong on its own. */
static meg_status open_given(meg_trainer *t, int count, const meg_tensor tensors[], given *out)
{
    meg_error *e = &t->ctx->error;
    int64_t most = largest(t, TRAIN);
    MEG_TRY(e, make_hand(t, out->kind));
    meg_reading *r = &t->hand->reading[out->kind];
    MEG_CHECK(e, count > 0 || !r->any, MEG_EARG,
              "rank %d reads a part of each batch, but it was given none", meg_rank(t->ctx));
    if (count <= 0) return MEG_OK;
    MEG_TRY(e, meg_dataset_arrays(e, &(meg_arrays){count, tensors, NULL, "the batch"}, &out->set));
    out->any = true;
    out->samples = out->set.count;
    MEG_CHECK(e, out->samples <= most || out->kind == EVAL, MEG_EARG,
              "the batch has %" PRId64 " samples, but the plan was made for %" PRId64
              ": give fewer, or make another plan",
              out->samples, most);
    MEG_TRY(e, meg_columns_fit(t->ctx, t->plan->source, &out->set, r, true));
    meg_wants_bind(r, t->plan, &out->set);
    return read_part(t, out->kind, &out->set, 0);
}

static void close_given(given *g)
{
    if (g->any) meg_dataset_close(&g->set);
}

/* Collective. How many samples the batch has, on ranks that gave none, too. */
static meg_status agree_on(meg_trainer *t, int64_t *samples)
{
    meg_error *e = &t->ctx->error;
    int ranks = meg_ranks(t->ctx), first = -1;
    if (ranks == 1) return MEG_OK;
    int64_t *all = calloc((size_t)ranks, sizeof *all);
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory to compare %d ranks", ranks);
    meg_status status = meg_comm_gather(t->ctx->comm, e, samples, sizeof *samples, all);
    for (int r = 0; r < ranks && status == MEG_OK; r++) {
        if (all[r] < 0) continue;
        if (first < 0) first = r;
        if (all[r] != all[first])
            status = meg_fail(e, MEG_EARG,
                              "rank %d has a batch of %" PRId64 " samples, rank %d one of %" PRId64
                              ": give all ranks the same batch",
                              first, all[first], r, all[r]);
    }
    if (status == MEG_OK && first >= 0) *samples = all[first];
    free(all);
    return status;
}

/* Collective. Close it in any case. */
static meg_status take(meg_trainer *t, int count, const meg_tensor tensors[], given *out)
{
    out->samples = -1;
    meg_status status = meg_context_agree(t->ctx, open_given(t, count, tensors, out));
    return status == MEG_OK ? agree_on(t, &out->samples) : status;
}

/* The part that was read. */
static meg_batch batch_of(const meg_trainer *t, const given *g, int64_t first)
{
    const meg_reading *r = &t->hand->reading[g->kind];
    int64_t rest = g->samples - first, most = largest(t, g->kind);
    return (meg_batch){rest < most ? rest : most, r->count, r->want, t->hand->data[g->kind]};
}

/* A node whose answer for a sample depends on the others; NULL: none. */
static const meg_node *mixer_of(const meg_graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op->norm_at) return &g->node[i];
    return NULL;
}

/* Fewer samples than planned are filled up, unless those would count in the statistics of others. */
static meg_status choose_entry(meg_trainer *t, int64_t samples, int *entry)
{
    int64_t whole = t->plan->entry[MEG_ENTRY_TRAIN].batch;
    int64_t tail = t->plan->entry[MEG_ENTRY_TRAIN_TAIL].batch;
    const meg_node *mixer = mixer_of(t->plan->source);
    char also[64] = "";
    *entry = samples == tail ? MEG_ENTRY_TRAIN_TAIL : MEG_ENTRY_TRAIN;
    if (tail) snprintf(also, sizeof also, " or %" PRId64, tail);
    MEG_CHECK(&t->ctx->error, samples == whole || samples == tail || !mixer, MEG_EARG,
              "'%s' normalises over samples: a batch of %" PRId64 " cannot be filled up to %" PRId64
              "; give batches of %" PRId64
              "%s, or make the plan with a data set whose last batch has "
              "as many samples",
              mixer->name, samples, whole, whole, also);
    return MEG_OK;
}

static meg_status run(meg_trainer *t, int entry, const meg_batch *b, meg_outcome *o)
{
    meg_error *e = &t->ctx->error;
    const meg_entry *program = &t->plan->entry[entry];
    meg_feed feed = {.scalars = {0, 0, 0, 1}, .seed = t->seed, .step = (uint64_t)t->step};
    double lr = program->train ? meg_trainer_rate(t) : 0;
    if (program->train) feed.scalars = (meg_scalars){lr, (double)(t->step + 1), 0, 1};
    meg_status status = meg_filled_take(&t->hand->filled, e, b, program->batch, &feed);
    if (status == MEG_OK) status = meg_engine_step(t->engine, e, entry, &feed, o);
    if (program->train && (status == MEG_OK || status == MEG_ENAN)) t->step++;
    if (status == MEG_ENAN && program->train)
        return meg_fail(
            e, MEG_ENAN,
            "the loss of step %" PRId64
            " is %f: use a smaller lr (now %g) or a warm-up, or look for numbers that are "
            "not finite in the batch",
            t->step, o->loss, lr);
    return status == MEG_ENAN ? status : meg_context_end(t->ctx, status);
}

static meg_status train(meg_trainer *t, given *g, meg_report *r)
{
    meg_error *e = &t->ctx->error;
    meg_outcome o = {0};
    int entry;
    double begin = meg_clock();
    meg_batch b = batch_of(t, g, 0);
    MEG_TRY(e, choose_entry(t, b.count, &entry));
    MEG_TRY(e, run(t, entry, &b, &o));
    meg_one_step s = {&o, b.count, meg_clock() - begin, t->plan->entry[entry].seconds};
    return meg_trainer_report(t, &s, r);
}

/* A part after the other, as large as evaluation takes them. */
static meg_status evaluate(meg_trainer *t, given *g, meg_report *r)
{
    meg_error *e = &t->ctx->error;
    meg_outcome sum = {0};
    double begin = meg_clock(), predicted = 0;
    for (int64_t first = 0; first < g->samples; first += largest(t, EVAL)) {
        meg_outcome o;
        if (first > 0)
            MEG_TRY(
                e, meg_context_agree(t->ctx, g->any ? read_part(t, EVAL, &g->set, first) : MEG_OK));
        meg_batch b = batch_of(t, g, first);
        double share = (double)b.count / (double)g->samples;
        MEG_TRY(e, run(t, MEG_ENTRY_EVAL, &b, &o));
        sum.loss += share * o.loss;
        sum.error += share * o.error;
        sum.correct += o.correct;
        predicted += t->plan->entry[MEG_ENTRY_EVAL].seconds;
    }
    meg_one_step s = {&sum, g->samples, meg_clock() - begin, predicted};
    return meg_trainer_report(t, &s, r);
}

meg_status meg_step(meg_trainer *t, int count, const meg_tensor tensors[], meg_report *report)
{
    meg_error *e = &t->ctx->error;
    given g = {.kind = TRAIN};
    meg_report r;
    MEG_CHECK(e, meg_graph_trainable(t->plan->source) > 0, MEG_EARG,
              "%s has nothing to train: all its weights are frozen, or it has none",
              t->plan->source->name);
    meg_status status = take(t, count, tensors, &g);
    if (status == MEG_OK) status = train(t, &g, &r);
    close_given(&g);
    MEG_TRY(e, status);
    int64_t every = t->options.checkpoint_every;
    if (every && t->checkpoints && t->step % every == 0) MEG_TRY(e, meg_trainer_checkpoint(t));
    if (report) *report = r;
    return MEG_OK;
}

meg_status meg_evaluate_batch(meg_trainer *t, int count, const meg_tensor tensors[],
                              meg_report *report)
{
    given g = {.kind = EVAL};
    meg_report r;
    meg_status status = take(t, count, tensors, &g);
    if (status == MEG_OK) status = evaluate(t, &g, &r);
    close_given(&g);
    MEG_TRY(&t->ctx->error, status);
    if (report) *report = r;
    return MEG_OK;
}

/* In training, of the last batch of an epoch, too, or in evaluation, which may go another way. */
bool meg_plan_reads(const meg_plan *p, int64_t index)
{
    int64_t part = p->entry[MEG_ENTRY_EVAL].batch;
    if (index < 0 || index >= p->entry[MEG_ENTRY_TRAIN].batch) return false;
    return meg_wants_sample(p, MEG_ENTRY_TRAIN, index) ||
           meg_wants_sample(p, MEG_ENTRY_TRAIN_TAIL, index) ||
           (part > 0 && meg_wants_sample(p, MEG_ENTRY_EVAL, index % part));
}
