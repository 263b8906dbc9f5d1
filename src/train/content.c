/* The same data on all ranks: see content.h. The first sample, the last and some between, each with its
 * labels, are read by all ranks and compared with what rank 0 has read:
 *
 *     samples   0 ......... 1/7 ......... 2/7 ....  ....  last
 *               numbers of the middle of each, evenly spread: all of them, if they are few
 *
 * Numbers may differ as far as machines round differently: a synthetic data set is computed, not read.
 */
#include "train/content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    PROBES = 8,     /* samples */
    READ = 1 << 16, /* numbers of a sample that are read at most, */
    SAMPLE = 1024,  /* that are compared, */
    LABELS = 256    /* and of its labels */
};

static const double NEAR = 1e-3; /* of the sample's largest number */

typedef struct probe {
    float sample[SAMPLE], label[LABELS];
} probe;

/* Halves the longest sides until what is left can be read at once. */
static meg_box middle_of(meg_box box)
{
    while (meg_box_size(&box) > READ) {
        int longest = MEG_C;
        for (int a = MEG_C; a < MEG_AXES; a++)
            if (meg_extent(&box, a) > meg_extent(&box, longest)) longest = a;
        int64_t extent = meg_extent(&box, longest);
        box.lo[longest] += extent / 4;
        box.hi[longest] = box.lo[longest] + extent / 2;
    }
    return box;
}

/* Evenly spread over all that was read. */
static int64_t place_of(int64_t i, int64_t kept, int64_t count)
{
    return count <= kept ? i : (int64_t)((double)i / (double)kept * (double)count);
}

/* Some numbers of a sample's field, as floats. */
static meg_status read_numbers(const meg_data *d, meg_ask ask, void *room, int64_t kept, float *out)
{
    meg_error *e = &d->ctx->error;
    const float *numbers = room;
    const int32_t *classes = room;
    ask.box = middle_of(ask.all);
    int64_t count = meg_box_size(&ask.box);
    MEG_TRY(e, meg_dataset_read(&d->set, e, &ask, room));
    for (int64_t i = 0; i < kept && i < count; i++) {
        int64_t at = place_of(i, kept, count);
        out[i] = ask.dtype == MEG_I32 ? (float)classes[at] : numbers[at];
    }
    return MEG_OK;
}

/* Of fields with names all have the same share of what is compared. */
static meg_status read_probe(const meg_data *d, int64_t index, void *room, probe *out)
{
    const meg_dataset *s = &d->set;
    meg_error *e = &d->ctx->error;
    for (int i = 0; i < s->fields && i < SAMPLE; i++) {
        const meg_column *f = &s->column[i];
        meg_ask ask = {.field = i, .index = index, .all = meg_box_of(1, 1, 1, 1, 1)};
        for (int a = 1; a < f->rank; a++)
            ask.all.hi[a] = f->dims[a];
        int64_t share = SAMPLE / s->fields;
        MEG_TRY(e, read_numbers(d, ask, room, share, out->sample + i * share));
    }
    if (s->fields) return MEG_OK;
    meg_wanted w[2];
    meg_dataset_wants(s, w);
    meg_ask sample = {w[0].field, index, w[0].dtype, w[0].all, w[0].all};
    meg_ask label = {w[1].field, index, w[1].dtype, w[1].all, w[1].all};
    MEG_TRY(e, read_numbers(d, sample, room, SAMPLE, out->sample));
    if (meg_box_empty(&label.all)) return MEG_OK; /* it has none */
    return read_numbers(d, label, room, LABELS, out->label);
}

static int64_t sample_of(const meg_data *d, int number)
{
    return (d->set.count - 1) * number / (PROBES - 1);
}

static meg_status read_probes(const meg_data *d, probe *out)
{
    void *room = malloc(READ * sizeof(float));
    meg_status status = MEG_OK;
    if (!room) return meg_fail(&d->ctx->error, MEG_ENOMEM, "no memory to compare data");
    for (int i = 0; i < PROBES && status == MEG_OK && d->set.count > 0; i++)
        status = read_probe(d, sample_of(d, i), room, &out[i]);
    free(room);
    return status;
}

/* Where the numbers differ first; -1: nowhere. */
static int64_t differs(const float a[], const float b[], int64_t count, double share)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(a[i])) largest = fmax(largest, fabs((double)a[i]));
    for (int64_t i = 0; i < count; i++) {
        bool same = isfinite(a[i]) && isfinite(b[i])
                        ? fabs((double)a[i] - (double)b[i]) <= share * largest
                        : (isnan(a[i]) && isnan(b[i])) || a[i] == b[i]; /* inf is not -inf */
        if (!same) return i;
    }
    return -1;
}

static meg_status compare(const meg_data *d, const probe mine[], const probe first[])
{
    meg_error *e = &d->ctx->error;
    for (int i = 0; i < PROBES; i++) {
        double near = d->set.tokens ? 0 : NEAR, share = d->set.real ? NEAR : 0;
        int64_t number = differs(first[i].sample, mine[i].sample, SAMPLE, near);
        int64_t label = differs(first[i].label, mine[i].label, LABELS, share);
        MEG_CHECK(e, number < 0 && label < 0, MEG_EDATA,
                  "%s: sample %" PRId64
                  " has other %s here than on rank 0 (%g, there %g): give all "
                  "ranks the same data",
                  d->set.source, sample_of(d, i), number >= 0 ? "numbers" : "labels",
                  (double)(number >= 0 ? mine[i].sample[number] : mine[i].label[label]),
                  (double)(number >= 0 ? first[i].sample[number] : first[i].label[label]));
    }
    return MEG_OK;
}

meg_status meg_data_same(const meg_data *d, bool reads)
{
    meg_context *ctx = d->ctx;
    meg_error *e = &ctx->error;
    meg_token count = {"another number of samples", (uint64_t)d->set.count};
    if (meg_comm_size(ctx->comm) == 1) return MEG_OK;
    MEG_TRY(e, meg_context_same(ctx, &count, 1));
    probe *mine = calloc(PROBES, sizeof *mine), *first = calloc(PROBES, sizeof *first);
    meg_status status = MEG_OK;
    if (!mine || !first) status = meg_fail(e, MEG_ENOMEM, "no memory to compare data");
    bool looks = reads || meg_comm_rank(ctx->comm) == 0;
    if (status == MEG_OK && looks) status = read_probes(d, mine);
    status = meg_context_agree(ctx, status);
    for (int i = 0; i < PROBES && status == MEG_OK; i++)
        first[i] = mine[i];
    if (status == MEG_OK)
        status = meg_comm_share(ctx->comm, e, 0, first, PROBES * (int64_t)sizeof *first);
    if (status == MEG_OK) status = meg_context_agree(ctx, looks ? compare(d, mine, first) : MEG_OK);
    free(mine);
    free(first);
    return status;
}
