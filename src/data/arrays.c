/* Arrays with names: see arrays.h. The last sample that the caller handed out is kept, since he gives all of
 * its arrays at once, and they are asked for one after the other.
 */
#include "data/arrays.h"
#include "data/reader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct state {
    int count;
    meg_column *column; /* (count) */
    meg_tensor *tensor; /* (count) all samples; if lazy, the one that is kept */
    bool lazy;
    meg_lazy how;
    int64_t kept; /* which; -1: none */
    pthread_mutex_t lock;
} state;

/* ---- opening ---- */

static meg_status check_tensor(meg_error *e, const meg_arrays *a, int i)
{
    const meg_tensor *t = &a->tensor[i];
    MEG_CHECK(e, t->name && *t->name, MEG_EARG, "%s: array %d has no name", a->name, i);
    MEG_CHECK(e, (int)t->dtype >= MEG_F32 && t->dtype <= MEG_BOOL, MEG_EARG,
              "%s: '%s' has a type that is not known: use f32, f64, i32, i64, u8 or bool", a->name,
              t->name);
    MEG_CHECK(e, t->rank >= 1 && t->rank <= MEG_AXES, MEG_EARG,
              "%s: '%s' has %d axes: 1 to %d are supported, the first of which counts samples",
              a->name, t->name, t->rank, MEG_AXES);
    int64_t size = 1;
    for (int k = 0; k < t->rank; k++) {
        MEG_CHECK(e, t->shape[k] >= 1, MEG_EARG,
                  "%s: axis %d of '%s' has extent %" PRId64 ": use 1 or more", a->name, k, t->name,
                  t->shape[k]);
        MEG_CHECK(e, !__builtin_mul_overflow(size, t->shape[k], &size) && size < INT64_MAX / 16,
                  MEG_EARG, "%s: '%s' is larger than any memory", a->name, t->name);
    }
    MEG_CHECK(e, t->shape[0] == a->tensor[0].shape[0], MEG_EARG,
              "%s: '%s' has %" PRId64 " samples, but '%s' has %" PRId64 ": use as many of each",
              a->name, t->name, t->shape[0], a->tensor[0].name, a->tensor[0].shape[0]);
    MEG_CHECK(e, a->lazy || t->data, MEG_EARG, "%s: '%s' has no data", a->name, t->name);
    for (int k = 0; k < i; k++)
        MEG_CHECK(e, strcmp(t->name, a->tensor[k].name) != 0, MEG_EARG, "%s: '%s' is there twice",
                  a->name, t->name);
    return MEG_OK;
}

static int64_t bytes_of(const meg_tensor *t) /* of a sample */
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    for (int i = 1; i < t->rank; i++)
        bytes *= t->shape[i];
    return bytes;
}

static void close_set(meg_dataset *d)
{
    state *s = d->state;
    for (int i = 0; i < s->count; i++) {
        if (s->lazy) free(s->tensor[i].data);
        free((void *)(uintptr_t)s->column[i].name);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->column);
    free(s->tensor);
    free(s);
}

static bool take(state *s, const meg_tensor *t)
{
    meg_column *c = &s->column[s->count];
    meg_tensor *own = &s->tensor[s->count++];
    *own = *t;
    *c = (meg_column){.name = strdup(t->name), .rank = t->rank, .dtype = t->dtype};
    memcpy(c->dims, t->shape, (size_t)t->rank * sizeof *t->shape);
    own->name = c->name;
    if (!s->lazy) return c->name;
    own->data = malloc(
        (size_t)bytes_of(t)); /* the caller sees one sample, without its first axis */
    own->rank--;
    memmove(own->shape, own->shape + 1, (size_t)own->rank * sizeof *own->shape);
    return c->name && own->data;
}

static const meg_reader ARRAYS;

meg_status meg_dataset_arrays(meg_error *e, const meg_arrays *a, meg_dataset *out)
{
    MEG_CHECK(e, a->count >= 1, MEG_EARG, "%s: there is no array", a->name);
    for (int i = 0; i < a->count; i++)
        MEG_TRY(e, check_tensor(e, a, i));
    state *s = calloc(1, sizeof *s);
    MEG_CHECK(e, s, MEG_ENOMEM, "%s: no memory", a->name);
    *s = (state){.lazy = a->lazy, .kept = -1};
    if (a->lazy) s->how = *a->lazy;
    pthread_mutex_init(&s->lock, NULL);
    s->column = calloc((size_t)a->count, sizeof *s->column);
    s->tensor = calloc((size_t)a->count, sizeof *s->tensor);
    meg_dataset d = {.reader = &ARRAYS, .state = s, .count = a->tensor[0].shape[0]};
    bool fits = s->column && s->tensor;
    for (int i = 0; i < a->count && fits; i++)
        fits = take(s, &a->tensor[i]);
    if (!fits) {
        close_set(&d);
        return meg_fail(e, MEG_ENOMEM, "%s: no memory for a sample", a->name);
    }
    snprintf(d.source, sizeof d.source, "%.250s", a->name);
    d.fields = s->count;
    d.column = s->column;
    *out = d;
    return MEG_OK;
}

/* ---- reading ---- */

#define CONVERT(name, from, to)                                                                    \
    static void name(void *out, const void *in, int64_t count)                                     \
    {                                                                                              \
        const from *x = in;                                                                        \
        to *y = out;                                                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            y[i] = (to)x[i];                                                                       \
    }

CONVERT(f64_f32, double, float)
CONVERT(f32_f64, float, double)
CONVERT(i32_f32, int32_t, float)
CONVERT(i32_f64, int32_t, double)
CONVERT(i64_f32, int64_t, float)
CONVERT(i64_f64, int64_t, double)
CONVERT(i64_i32, int64_t, int32_t)
CONVERT(u8_f32, uint8_t, float)
CONVERT(u8_f64, uint8_t, double)
CONVERT(u8_i32, uint8_t, int32_t)

typedef void convert_fn(void *out, const void *in, int64_t count);

/* From a type of the caller's to one that is asked for; NULL: real numbers do not become whole ones. */
static convert_fn *const converts[MEG_BOOL + 1][MEG_I32 + 1] = {
    [MEG_F32] = {[MEG_F64] = f32_f64},
    [MEG_F64] = {[MEG_F32] = f64_f32},
    [MEG_I32] = {[MEG_F32] = i32_f32, [MEG_F64] = i32_f64},
    [MEG_I64] = {[MEG_F32] = i64_f32, [MEG_F64] = i64_f64, [MEG_I32] = i64_i32},
    [MEG_U8] = {[MEG_F32] = u8_f32, [MEG_F64] = u8_f64, [MEG_I32] = u8_i32},
    [MEG_BOOL] = {[MEG_F32] = u8_f32, [MEG_F64] = u8_f64, [MEG_I32] = u8_i32},
};

/* Ids and classes have 32 bits. */
static meg_status check_narrow(const meg_dataset *d, meg_error *e, const meg_ask *ask,
                               const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        MEG_CHECK(e, numbers[i] == (int32_t)numbers[i], MEG_EDATA,
                  "%s: sample %" PRId64 " of '%s' has the number %" PRId64
                  ", but ids and classes have 32 bits",
                  d->source, ask->index, d->column[ask->field].name, numbers[i]);
    return MEG_OK;
}

/* The sample's elements are at `from`, row-major. */
static meg_status copy_box(const meg_dataset *d, meg_error *e, const meg_ask *ask, const char *from,
                           char *out)
{
    meg_dtype has = d->column[ask->field].dtype;
    int64_t each = meg_dtype_bytes(has), made = meg_dtype_bytes(ask->dtype);
    convert_fn *convert = converts[has][ask->dtype];
    MEG_CHECK(e, has == ask->dtype || convert, MEG_EARG,
              "%s: '%s' has real numbers (%s), not whole ones", d->source,
              d->column[ask->field].name, meg_dtype_name(has));
    for (meg_run r = meg_run_first(&ask->all, &ask->box); r.on; meg_run_next(&r)) {
        const char *in = from + r.at * each;
        if (has == MEG_I64 && ask->dtype == MEG_I32)
            MEG_TRY(e, check_narrow(d, e, ask, (const int64_t *)in, r.length));
        if (has == ask->dtype) memcpy(out + r.done * made, in, (size_t)(r.length * made));
        else convert(out + r.done * made, in, r.length);
    }
    return MEG_OK;
}

/* With the lock. */
static meg_status keep(const meg_dataset *d, meg_error *e, int64_t index)
{
    state *s = d->state;
    if (s->kept == index) return MEG_OK;
    s->kept = -1;
    int failed = s->how.read(s->how.user, index, s->count, s->tensor);
    MEG_CHECK(e, !failed, MEG_EDATA, "%s: sample %" PRId64 " could not be read (%d)", d->source,
              index, failed);
    s->kept = index;
    return MEG_OK;
}

static meg_status get(const meg_dataset *d, meg_error *e, const meg_ask *ask, void *out)
{
    state *s = d->state;
    const meg_tensor *t = &s->tensor[ask->field];
    if (!s->lazy) return copy_box(d, e, ask, (const char *)t->data + ask->index * bytes_of(t), out);
    pthread_mutex_lock(&s->lock);
    meg_status status = keep(d, e, ask->index);
    if (status == MEG_OK) status = copy_box(d, e, ask, t->data, out);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static const meg_reader ARRAYS = {
    .name = "arrays", .doc = "arrays in the caller's memory", .close = close_set, .get = get};
