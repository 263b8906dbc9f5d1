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
    ALIGNMENT = 64
};

typedef enum slot_state {
    FREE,
    WANTED,
    READY
} slot_state;

typedef struct slot {
    slot_state state;
    int64_t epoch, index, count;
    void **data; /* (wants) (count, c, d, h, w) */
    meg_error error;
} slot;

struct meg_loader {
    const meg_dataset *data;
    meg_loader_options options;
    meg_wanted whole[2]; /* of a data set without names, if nothing else is wanted */
    int64_t batches;     /* of a pass */
    char *plain;         /* a part of a sample, or of its labels, before augmentation; NULL: none */
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

/* Labels per pixel move along with their image; ids of tokens stay, and so do labels of the whole sample. */
static bool has_pixels(const meg_wanted *w)
{
    return !w->ids && (meg_extent(&w->all, MEG_H) > 1 || meg_extent(&w->all, MEG_W) > 1);
}

static const meg_wanted *first_image(const meg_loader_options *o)
{
    for (int i = 0; i < o->wants; i++)
        if (!o->want[i].label && has_pixels(&o->want[i])) return &o->want[i];
    return NULL;
}

static change draw_change(const meg_loader *l, int64_t epoch, int64_t sample)
{
    const meg_loader_options *o = &l->options;
    meg_stream s = {o->seed, (uint64_t)epoch, meg_hash("augment")};
    uint32_t bits[4];
    meg_random_bits(s, (uint64_t)sample, bits);
    const meg_wanted *image = first_image(o);
    return (change){draw_shift(bits[0], o->shift, image ? image->all.hi[MEG_H] : 1),
                    draw_shift(bits[1], o->shift, image ? image->all.hi[MEG_W] : 1),
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

/* A part of a changed image, or of its labels. */
static meg_status read_changed(const meg_loader *l, slot *b, const meg_ask *ask, const change *g,
                               const meg_wanted *w, void *out)
{
    meg_box source = source_of(&w->all, g, w->box);
    change_job j = {.image = &w->all,
                    .part = &w->box,
                    .source = &source,
                    .change = g,
                    .none = !w->label             ? 0
                            : w->dtype == MEG_I32 ? (uint32_t)NO_CLASS
                                                  : NOT_A_NUMBER};
    meg_ask part = *ask;
    part.box = source;
    if (!meg_box_empty(&source))
        MEG_TRY(&b->error, meg_dataset_read(l->data, &b->error, &part, l->plain));
    apply_change(&j, (const uint32_t *)l->plain, out);
    return MEG_OK;
}

/* What is wanted of sample `sample` of the data set, as the i-th of the batch. */
static meg_status fill_sample(const meg_loader *l, slot *b, int64_t i, int64_t sample)
{
    change g = draw_change(l, b->epoch, sample);
    for (int k = 0; k < l->options.wants; k++) {
        const meg_wanted *w = &l->options.want[k];
        if (meg_box_empty(&w->box) || (w->of && !w->of[i])) continue;
        char *out = (char *)b->data[k] + i * meg_wanted_numbers(w) * meg_dtype_bytes(w->dtype);
        meg_ask ask = {w->field, sample, w->dtype, w->all, w->box};
        if (l->plain && has_pixels(w)) MEG_TRY(&b->error, read_changed(l, b, &ask, &g, w, out));
        else MEG_TRY(&b->error, meg_dataset_read(l->data, &b->error, &ask, out));
        MEG_TRY(&b->error, meg_wanted_check(l->data, &b->error, w, sample, out));
    }
    return MEG_OK;
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

/* All that move are moved alike. */
static meg_status check_moves(meg_error *e, const meg_dataset *d, const meg_loader_options *o)
{
    const meg_wanted *image = first_image(o);
    MEG_CHECK(e, image || !d->tokens, MEG_EARG,
              "loader: %s has tokens: shift and flip are for "
              "images",
              d->source);
    for (int i = 0; i < o->wants && image; i++) {
        const meg_wanted *w = &o->want[i];
        bool same = true;
        for (int axis = MEG_D; axis < MEG_AXES && has_pixels(w); axis++)
            same = same && w->all.hi[axis] == image->all.hi[axis];
        MEG_CHECK(e, same, MEG_EARG,
                  "loader: %s has %s per pixel of another extent than "
                  "its images: shift and flip cannot move them along",
                  d->source, w->label ? "labels" : w->name);
        MEG_CHECK(e, w->dtype != MEG_F64 || !has_pixels(w), MEG_EARG,
                  "loader: '%s' of %s is in double: shift and flip are for floats", w->name,
                  d->source);
    }
    return MEG_OK;
}

static meg_status check(meg_error *e, const meg_dataset *d, const meg_loader_options *o)
{
    if (o->shift || o->flip) MEG_TRY(e, check_moves(e, d, o));
    MEG_CHECK(e, o->batch >= 1, MEG_EARG, "loader: batch=%" PRId64 ": use 1 or more", o->batch);
    MEG_CHECK(e, 0 <= o->shift && o->shift <= INT32_MAX, MEG_EARG,
              "loader: shift=%" PRId64 ": use 0 or more", o->shift);
    return MEG_OK;
}

static bool allocate_slot(const meg_loader *l, slot *b, int64_t most)
{
    b->data = calloc((size_t)l->options.wants + 1, sizeof *b->data);
    for (int k = 0; b->data && k < l->options.wants; k++) {
        const meg_wanted *w = &l->options.want[k];
        size_t bytes = (size_t)(most * meg_wanted_numbers(w) + 1) *
                       (size_t)meg_dtype_bytes(w->dtype);
        if (posix_memalign(&b->data[k], ALIGNMENT, bytes)) return false;
    }
    return b->data;
}

static meg_status allocate(meg_error *e, meg_loader *l)
{
    int64_t most = l->options.batch < l->data->count ? l->options.batch : l->data->count;
    int64_t all = 1, largest = 0;
    for (int k = 0; k < l->options.wants; k++) {
        int64_t numbers = meg_wanted_numbers(&l->options.want[k]);
        all += numbers;
        if (numbers > largest) largest = numbers;
    }
    bool fits = most <= INT64_MAX / 16 / all;
    for (int i = 0; i < SLOTS && fits; i++)
        fits = allocate_slot(l, &l->slot[i], most);
    if (fits && (l->options.shift || l->options.flip)) {
        l->plain = malloc((size_t)(largest + 1) * sizeof(float));
        fits = l->plain;
    }
    MEG_CHECK(e, fits, MEG_ENOMEM,
              "loader: no memory for two batches of %" PRId64 " samples of %" PRId64 " values",
              most, all - 1);
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
    meg_loader *l = calloc(1, sizeof *l);
    MEG_CHECK(e, l, MEG_ENOMEM, "loader: no memory");
    l->data = d;
    l->options = *o;
    if (o->wants == 0) {
        meg_dataset_wants(d, l->whole);
        l->options.wants = 2;
        l->options.want = l->whole;
    }
    meg_status status = check(e, d, &l->options);
    if (status == MEG_OK) l->batches = (d->count - 1) / o->batch + 1;
    if (status == MEG_OK) status = allocate(e, l);
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
        for (int k = 0; l->slot[i].data && k < l->options.wants; k++)
            free(l->slot[i].data[k]);
        free(l->slot[i].data);
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
        *out = (meg_batch){b->count, l->options.wants, l->options.want, b->data};
    } else {
        *e = b->error;
        b->state = FREE; /* asked again, it is tried again */
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}
