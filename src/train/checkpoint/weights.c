/* Weights to and from files: see weights.h. */
#include "train/checkpoint/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Constants of a network's code are no weights: its file has them. */
static bool wanted(const meg_weights_file *w, const meg_item *t)
{
    return w->optimizer == (t->role == MEG_ROLE_STATE) && !t->value->unsaved;
}

/* ---- writing ---- */

typedef struct saving { /* tensors arrive one by one, in pieces */
    meg_collection *c;
    meg_error *error;
    const meg_saved *list;
    int *item;          /* (list): of the collection */
    meg_saved_put *put; /* of the tensor at hand */
    void *to;
    const meg_item *what;
    char *
        matrix; /* one that files have transposed, as far as it is there; NULL: it goes out at once */
    int64_t filled;
} saving;

static bool all_finite(const void *data, int64_t count, int64_t element)
{
    double sum = 0; /* stays finite unless an element is not */
    for (int64_t i = 0; i < count; i++)
        sum += 0 * (element == 8 ? ((const double *)data)[i] : (double)((const float *)data)[i]);
    return isfinite(sum);
}

/* A last step may have spoilt weights without a loss to show it: such are not saved. What is fixed may
 * be a mask of minus infinity. */
static meg_status take(void *context, const void *data, int64_t count)
{
    saving *s = context;
    int64_t element = meg_dtype_bytes(meg_collection_real(s->c));
    bool fixed = s->what->value->kind == MEG_FIXED;
    MEG_CHECK(s->error, fixed || all_finite(data, count, element), MEG_ENAN,
              "%s is not finite: nothing is saved", s->what->name);
    if (!s->matrix) return s->put(s->to, data, count * element);
    memcpy(s->matrix + s->filled * element, data, (size_t)(count * element));
    s->filled += count;
    return MEG_OK;
}

int64_t meg_weights_place(const meg_value *v, int64_t at)
{
    if (!v->turned) return at;
    int64_t columns = v->dims[v->rank - 1], rows = meg_box_size(&v->shape) / columns;
    return at % rows * columns + at / rows;
}

/* Whole, since its rows are columns of the file. */
static meg_status get_turned(saving *s, int item)
{
    const meg_value *v = s->what->value;
    int64_t size = meg_box_size(&v->shape), each = meg_dtype_bytes(meg_collection_real(s->c));
    char *turned = malloc((size_t)(size * each));
    s->matrix = malloc((size_t)(size * each));
    s->filled = 0;
    meg_status status = MEG_OK;
    if (!turned || !s->matrix) status = meg_fail(s->error, MEG_ENOMEM, "%s: no memory", v->name);
    if (status == MEG_OK) status = meg_collection_get(s->c, s->error, item, take, s);
    for (int64_t i = 0; status == MEG_OK && i < size; i++)
        memcpy(turned + meg_weights_place(v, i) * each, s->matrix + i * each, (size_t)each);
    if (status == MEG_OK) status = s->put(s->to, turned, size * each);
    free(turned);
    free(s->matrix);
    s->matrix = NULL;
    return status;
}

static meg_status get_tensor(void *context, const meg_saved *t, meg_saved_put *put, void *to)
{
    saving *s = context;
    int item = s->item[t - s->list];
    s->put = put;
    s->to = to;
    s->what = meg_collection_item(s->c, item);
    if (s->what->value->turned) return get_turned(s, item);
    return meg_collection_get(s->c, s->error, item, take, s);
}

meg_status meg_weights_write(meg_collection *c, meg_error *e, const meg_weights_file *w)
{
    meg_pool *pool = meg_pool_new();
    size_t room = (size_t)meg_collection_count(c) + 1;
    meg_saved *list = meg_pool_alloc(pool, room * sizeof *list);
    saving s = {.c = c, .error = e, .list = list};
    s.item = meg_pool_alloc(pool, room * sizeof *s.item);
    int count = 0;
    for (int i = 0; i < meg_collection_count(c); i++) {
        const meg_item *t = meg_collection_item(c, i);
        if (!wanted(w, t)) continue;
        list[count] = (meg_saved){
            .name = t->name, .dtype = meg_collection_real(c), .rank = t->value->rank};
        memcpy(list[count].dims, t->value->dims, sizeof t->value->dims);
        s.item[count++] = i;
    }
    meg_saved_file file = {count, w->notes, list, w->note};
    meg_status status = meg_safetensors_stream(e, w->path, &file,
                                               &(meg_saved_source){get_tensor, &s}, w->shard);
    meg_pool_free(pool);
    return status;
}

/* ---- reading ---- */

/* Of tied weights PyTorch's save_model writes one, and notes under the others' names which. */
static int find(const meg_safetensors *f, const char *name)
{
    int at = meg_safetensors_find(f, name);
    const char *same = at < 0 ? meg_safetensors_note(f, name) : NULL;
    return same ? meg_safetensors_find(f, same) : at;
}

/* Extents without those of 1: (32, 12) of PyTorch is (32, 12, 1) where a dense layer of tokens is a
 * convolution with one tap. */
static int extents(int rank, const int64_t dims[], int64_t out[MEG_SAVED_RANK])
{
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (dims[i] != 1) out[count++] = dims[i];
    return count;
}

static bool same_numbers(const meg_saved_numbers *t, const meg_value *v)
{
    int64_t a[MEG_SAVED_RANK], b[MEG_SAVED_RANK];
    int count = extents(t->rank, t->dims, a);
    return count == extents(v->rank, v->dims, b) && memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static void shape_text(char *out, size_t size, int rank, const int64_t dims[])
{
    snprintf(out, size, "(");
    for (int i = 0; i < rank; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%" PRId64, i ? ", " : "", dims[i]);
    snprintf(out + strlen(out), size - strlen(out), ")");
}

static meg_status look(meg_error *e, const meg_weights_file *w, const meg_safetensors *f,
                       const meg_item *t, const char *whose)
{
    meg_saved_numbers found;
    const meg_value *v = t->value;
    MEG_TRY(e, meg_safetensors_numbers(f, e, find(f, t->name), &found));
    MEG_CHECK(e, !found.whole || v->kind == MEG_FIXED, MEG_EDATA,
              "%s: %s is of whole numbers, but %s trains it: real ones are needed", w->path,
              t->name, whose);
    char has[128], needs[128];
    shape_text(has, sizeof has, found.rank, found.dims);
    shape_text(needs, sizeof needs, v->rank, v->dims);
    MEG_CHECK(e, same_numbers(&found, v), MEG_EDATA,
              "%s: %s has another shape than %s needs: %s, not %s", w->path, t->name, whose, has,
              needs);
    return MEG_OK;
}

/* All names that a file lacks, or the first few of them. */
static meg_status check_names(const meg_collection *c, meg_error *e, const meg_weights_file *w,
                              const meg_safetensors *f, const char *whose)
{
    enum {
        TOLD = 8
    };
    char names[512] = "", more[32] = "";
    int missing = 0;
    for (int i = 0; i < meg_collection_count(c); i++) {
        const meg_item *t = meg_collection_item(c, i);
        if (!wanted(w, t) || find(f, t->name) >= 0 || missing++ >= TOLD) continue;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.100s",
                 missing > 1 ? ", " : "", t->name);
    }
    if (missing > TOLD) snprintf(more, sizeof more, " and %d more", missing - TOLD);
    MEG_CHECK(e, missing == 0, MEG_EDATA, "%s: there is no %s%s, which %s needs", w->path, names,
              more, whose);
    return MEG_OK;
}

meg_status meg_weights_check(const meg_collection *c, meg_error *e, const meg_weights_file *w,
                             const meg_safetensors *f, const char *whose)
{
    MEG_TRY(e, check_names(c, e, w, f, whose));
    for (int i = 0; i < meg_collection_count(c); i++) {
        const meg_item *t = meg_collection_item(c, i);
        if (wanted(w, t)) MEG_TRY(e, look(e, w, f, t, whose));
    }
    return MEG_OK;
}

typedef struct source {
    meg_saved_numbers from;
    meg_dtype real;
    const meg_value *value;
} source;

static void give(void *context, int64_t first, int64_t count, void *piece)
{
    const source *s = context;
    for (int64_t i = 0; i < count; i++) {
        double number = meg_saved_number(&s->from, meg_weights_place(s->value, first + i));
        if (s->real == MEG_F64) ((double *)piece)[i] = number;
        else ((float *)piece)[i] = (float)number;
    }
}

meg_status meg_weights_read(meg_collection *c, meg_error *e, const meg_weights_file *w,
                            const meg_safetensors *f)
{
    for (int i = 0; i < meg_collection_count(c); i++) {
        const meg_item *t = meg_collection_item(c, i);
        source s = {.real = meg_collection_real(c), .value = t->value};
        if (!wanted(w, t)) continue;
        MEG_TRY(e, meg_safetensors_numbers(f, e, find(f, t->name), &s.from));
        MEG_TRY(e, meg_collection_put(c, e, i, give, &s));
    }
    return MEG_OK;
}
