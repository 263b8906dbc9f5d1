/* The loader: see data.h. Two slots: the caller works on one while the thread fills the other with
 * the batch that follows, beyond the end of a pass with the first of the next.
 *
 *     caller   next(0,0)  [use 0,0]  next(0,1)  [use 0,1]  next(1,0) ...
 *     thread     0,0 -> A   0,1 -> B              1,0 -> A
 *
 * A slot goes FREE -> WANTED -> READY; at most one is WANTED. Both sides sleep on conditions. An
 * error of the thread stays in its slot until the caller asks for that batch.
 */
#include "base/random.h"
#include "data/data.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 2,
    ALIGNMENT = 64,
    LABEL_BYTES = 4
};

typedef enum slot_state {
    FREE,
    WANTED,
    READY
} slot_state;

typedef struct slot {
    slot_state state;
    int64_t epoch, index, count;
    float *samples; /* (count, c, d, h, w) */
    char *labels;   /* (count, c, d, h, w) of 4 bytes: int32_t, or float where they are real */
    meg_error error;
} slot;

struct meg_loader {
    const meg_dataset *data;
    meg_loader_options options;
    meg_wanted part;                          /* what is read */
    int64_t batches, sample_size, label_size; /* of a pass; elements of what is wanted */
    char *plain; /* a part of a sample, or of its labels, before augmentation */
    slot slot[SLOTS];
    int current; /* the caller's slot; the other is the thread's */
    bool stop;
    bool has_thread, has_lock;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the states of slots, and stop */
    pthread_cond_t wanted, ready;
};

/* ---- the thread's side ---- */

typedef struct change { /* of one sample */
    int64_t down, right;
    bool flip;
} change;

static int64_t draw_shift(uint32_t bits, int64_t shift, int64_t extent)
{
    if (shift > extent - 1) shift = extent - 1; /* a sequence (h = 1) is not moved along h */
    return (int64_t)(bits % (uint64_t)(2 * shift + 1)) - shift;
}

static change draw_change(const meg_loader *l, int64_t epoch, int64_t sample)
{
    const meg_loader_options *o = &l->options;
    meg_stream s = {o->seed, (uint64_t)epoch, meg_hash("augment")};
    uint32_t bits[4];
    meg_random_bits(s, (uint64_t)sample, bits);
    return (change){draw_shift(bits[0], o->shift, l->data->sample.hi[MEG_H]),
                    draw_shift(bits[1], o->shift, l->data->sample.hi[MEG_W]),
                    o->flip && bits[2] >> 31};
}

/* What a part of the changed image is made of: a box of the image; empty: nothing. */
static meg_box source_of(const meg_box *image, const change *g, meg_box part)
{
    int64_t width = image->hi[MEG_W], lo = part.lo[MEG_W] - g->right;
    int64_t hi = part.hi[MEG_W] - g->right;
    part.lo[MEG_H] -= g->down;
    part.hi[MEG_H] -= g->down;
    part.lo[MEG_W] = g->flip ? width - hi : lo;
    part.hi[MEG_W] = g->flip ? width - lo : hi;
    return meg_box_meet(part, *image);
}

typedef struct change_job {
    const meg_box *image, *part, *source; /* source: what `in` holds */
    const change *change;
    uint32_t none; /* what is shifted in */
} change_job;

/* out(.., h, w) = in(.., h - down, mirrored w - right), `none` where that lies outside. Elements
 * are 4 bytes of any kind. */
static void apply_change(const change_job *j, const uint32_t *in, uint32_t *out)
{
    const change *g = j->change;
    const meg_box *s = j->source;
    int64_t width = j->image->hi[MEG_W], p[MEG_AXES];
    for (bool on = meg_box_first(j->part, p); on; on = meg_box_next(j->part, p)) {
        int64_t q[MEG_AXES] = {p[0], p[1], p[2], p[3] - g->down, p[4] - g->right};
        if (g->flip) q[MEG_W] = width - 1 - q[MEG_W];
        bool inside = s->lo[MEG_H] <= q[MEG_H] && q[MEG_H] < s->hi[MEG_H] &&
                      s->lo[MEG_W] <= q[MEG_W] && q[MEG_W] < s->hi[MEG_W];
        *out++ = inside ? in[meg_box_at(s, q)] : j->none;
    }
}

enum {
    NO_CLASS = -1,
    NOT_A_NUMBER = 0x7fc00000 /* as a float: a target that does not count */
};

static bool per_pixel(const meg_dataset *d)
{
    return meg_extent(&d->label, MEG_H) > 1 || meg_extent(&d->label, MEG_W) > 1;
}

typedef meg_status read_fn(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                           void *out);

static meg_status read_sample(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              void *out)
{
    return d->reader->read(d, e, index, box, out);
}

/* A token that the network has no row for would only show as a loss that is no number. */
static meg_status check_tokens(const meg_loader *l, meg_error *e, int64_t sample, const float *ids)
{
    int64_t count = l->sample_size, known = l->options.vocabulary;
    for (int64_t i = 0; i < count && known > 0; i++)
        MEG_CHECK(e, ids[i] < (float)known, MEG_EDATA,
                  "%s: sample %" PRId64 " has the token %.0f, but the network knows 0..%" PRId64
                  ": mend the sample, or use a network for more tokens",
                  l->data->source, sample, (double)ids[i], known - 1);
    return MEG_OK;
}

/* A part of a changed image, or of its labels. */
static meg_status read_changed(const meg_loader *l, slot *b, int64_t sample, change_job *j,
                               read_fn *read, void *out)
{
    meg_box source = source_of(j->image, j->change, *j->part);
    j->source = &source;
    if (!meg_box_empty(&source))
        MEG_TRY(&b->error, read(l->data, &b->error, sample, &source, l->plain));
    apply_change(j, (const uint32_t *)l->plain, out);
    return MEG_OK;
}

static bool wants(const meg_box *box, const bool of[], int64_t i)
{
    return !meg_box_empty(box) && (!of || of[i]);
}

/* Sample `sample` of the data set as the i-th of the batch. */
static meg_status fill_sample(const meg_loader *l, slot *b, int64_t i, int64_t sample)
{
    const meg_dataset *d = l->data;
    const meg_wanted *w = &l->part;
    float *out = b->samples + i * l->sample_size;
    char *label = b->labels + i * l->label_size * LABEL_BYTES;
    change g = draw_change(l, b->epoch, sample);
    change_job image = {.image = &d->sample, .part = &w->sample, .change = &g};
    change_job labels = {.image = &d->label,
                         .part = &w->label,
                         .change = &g,
                         .none = d->real ? NOT_A_NUMBER : (uint32_t)NO_CLASS};
    if (wants(&w->sample, w->of_sample, i)) {
        if (l->plain) MEG_TRY(&b->error, read_changed(l, b, sample, &image, read_sample, out));
        else MEG_TRY(&b->error, read_sample(d, &b->error, sample, &w->sample, out));
        if (d->tokens) MEG_TRY(&b->error, check_tokens(l, &b->error, sample, out));
    }
    if (!wants(&w->label, w->of_label, i)) return MEG_OK;
    if (l->plain && per_pixel(d))
        return read_changed(l, b, sample, &labels, d->reader->label, label);
    return d->reader->label(d, &b->error, sample, &w->label, label);
}

static meg_status fill(const meg_loader *l, slot *b)
{
    const meg_loader_options *o = &l->options;
    meg_stream order = {o->seed, (uint64_t)b->epoch, meg_hash("shuffle")};
    int64_t first = b->index * o->batch, rest = l->data->count - first;
    b->count = rest < o->batch ? rest : o->batch;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t sample = first + i;
        if (o->shuffle) sample = meg_random_permuted(order, l->data->count, sample);
        MEG_TRY(&b->error, fill_sample(l, b, i, sample));
    }
    return MEG_OK;
}

static slot *find(meg_loader *l, slot_state state)
{
    for (int i = 0; i < SLOTS; i++)
        if (l->slot[i].state == state) return &l->slot[i];
    return NULL;
}

static void *run(void *loader)
{
    meg_loader *l = loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        slot *b = find(l, WANTED);
        if (!b) {
            pthread_cond_wait(&l->wanted, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        meg_error_clear(&b->error);
        fill(l, b); /* its status is in the slot's error */
        pthread_mutex_lock(&l->lock);
        b->state = READY;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the caller's side ---- */

static meg_status check(meg_error *e, const meg_dataset *d, const meg_loader_options *o)
{
    bool moved = o->shift || o->flip, plane = true;
    for (int axis = MEG_D; axis < MEG_AXES && per_pixel(d); axis++)
        plane = plane && d->label.hi[axis] == d->sample.hi[axis];
    MEG_CHECK(e, !moved || !d->tokens, MEG_EARG,
              "loader: %s has tokens: shift and flip are for "
              "images",
              d->source);
    MEG_CHECK(e, !moved || plane, MEG_EARG,
              "loader: %s has labels per pixel of another extent than "
              "its images: shift and flip cannot move them along",
              d->source);
    MEG_CHECK(e, o->batch >= 1, MEG_EARG, "loader: batch=%" PRId64 ": use 1 or more", o->batch);
    MEG_CHECK(e, 0 <= o->shift && o->shift <= INT32_MAX, MEG_EARG,
              "loader: shift=%" PRId64 ": use 0 or more", o->shift);
    return MEG_OK;
}

static meg_status allocate(meg_error *e, meg_loader *l)
{
    int64_t most = l->options.batch < l->data->count ? l->options.batch : l->data->count;
    bool fits = most <= INT64_MAX / 8 / (l->sample_size + l->label_size + 1);
    for (int i = 0; i < SLOTS && fits; i++) {
        slot *b = &l->slot[i];
        size_t bytes = (size_t)(most * l->sample_size + 1) * sizeof *b->samples;
        fits = posix_memalign((void **)&b->samples, ALIGNMENT, bytes) == 0;
        b->labels = malloc((size_t)(most * l->label_size + 1) * LABEL_BYTES);
        fits = fits && b->labels;
    }
    if (fits && (l->options.shift || l->options.flip)) {
        int64_t size = l->sample_size > l->label_size ? l->sample_size : l->label_size;
        l->plain = malloc((size_t)(size + 1) * sizeof(float));
        fits = l->plain;
    }
    MEG_CHECK(e, fits, MEG_ENOMEM,
              "loader: no memory for two batches of %" PRId64 " samples of %" PRId64 " values",
              most, l->sample_size);
    return MEG_OK;
}

/* Signals are for the threads of the user: this one blocks them all. */
static meg_status start(meg_error *e, meg_loader *l)
{
    sigset_t all, before;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wanted, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->has_lock = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    MEG_CHECK(e, !failed, MEG_ENOMEM, "loader: cannot start a thread: %s", strerror(failed));
    l->has_thread = true;
    return MEG_OK;
}

meg_status meg_loader_new(meg_error *e, const meg_dataset *d, const meg_loader_options *o,
                          meg_loader **out)
{
    MEG_TRY(e, check(e, d, o));
    meg_loader *l = calloc(1, sizeof *l);
    MEG_CHECK(e, l, MEG_ENOMEM, "loader: no memory");
    l->data = d;
    l->options = *o;
    l->batches = (d->count - 1) / o->batch + 1;
    l->part = o->wanted ? *o->wanted : (meg_wanted){d->sample, d->label, NULL, NULL};
    l->sample_size = meg_box_size(&l->part.sample);
    l->label_size = meg_box_size(&l->part.label);
    meg_status status = allocate(e, l);
    if (status == MEG_OK) status = start(e, l);
    if (status != MEG_OK) {
        meg_loader_free(l);
        return meg_trail(e, status, __func__);
    }
    *out = l;
    return MEG_OK;
}

void meg_loader_free(meg_loader *l)
{
    if (!l) return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->wanted);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    if (l->has_lock) {
        pthread_cond_destroy(&l->ready);
        pthread_cond_destroy(&l->wanted);
        pthread_mutex_destroy(&l->lock);
    }
    for (int i = 0; i < SLOTS; i++) {
        free(l->slot[i].samples);
        free(l->slot[i].labels);
    }
    free(l->plain);
    free(l);
}

static bool holds(const slot *b, int64_t epoch, int64_t index)
{
    return b->state != FREE && b->epoch == epoch && b->index == index;
}

static void request(meg_loader *l, slot *b, int64_t epoch, int64_t index)
{
    b->epoch = epoch;
    b->index = index;
    b->state = WANTED;
    pthread_cond_signal(&l->wanted);
}

/* Makes slot `current` hold the batch. A batch guessed wrong must end before ours can begin. */
static void fetch(meg_loader *l, int64_t epoch, int64_t index)
{
    if (!holds(&l->slot[l->current], epoch, index)) l->current = !l->current;
    slot *b = &l->slot[l->current];
    while (b->state != READY || !holds(b, epoch, index)) {
        if (!find(l, WANTED)) request(l, b, epoch, index);
        pthread_cond_wait(&l->ready, &l->lock);
    }
}

meg_status meg_loader_next(meg_loader *l, meg_error *e, int64_t epoch, int64_t index,
                           meg_batch *out)
{
    MEG_CHECK(e, epoch >= 0 && 0 <= index && index < l->batches, MEG_EARG,
              "loader: batch %" PRId64 " of pass %" PRId64 ", but a pass has batches 0..%" PRId64,
              index, epoch, l->batches - 1);
    pthread_mutex_lock(&l->lock);
    fetch(l, epoch, index);
    slot *b = &l->slot[l->current], *other = &l->slot[!l->current];
    meg_status status = b->error.status;
    if (status == MEG_OK) {
        bool last = index + 1 == l->batches;
        int64_t then = last ? epoch + 1 : epoch, next = last ? 0 : index + 1;
        if (!holds(other, then, next)) request(l, other, then, next);
        *out = (meg_batch){.count = b->count,
                           .samples = b->samples,
                           .sample = l->part.sample,
                           .label = l->part.label};
        if (l->data->real) out->targets = (const float *)b->labels;
        else out->labels = (const int32_t *)b->labels;
    } else {
        *e = b->error;
        b->state = FREE; /* asked again, it is tried again */
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}
