/* Held memory seen from outside: weights, gradients and optimizer states in plain format.
 *
 * Formats that block channels keep samples apart, so such values are handed over in slices along n
 * and need little working memory, however large they are; weight formats go whole (they belong to
 * convolutions, which are small).
 */
#include "exec/engine.h"
#include "exec/start.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 4 << 20
}; /* bytes of a slice, about */

typedef struct transfer {
    meg_engine *x;
    const meg_held_slot *held;
    const meg_value *value;
    bool put;
    bool start; /* plain memory goes whole: what is stored transposed is read in the file's order */
    meg_visit *visit;
    void *context;
} transfer;

static const meg_held_slot *find(const meg_engine *x, int value, meg_role role, int index)
{
    const meg_plan *p = meg_engine_plan(x);
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *h = &p->held[i];
        if (h->value == value && h->role == role && h->index == index) return h;
    }
    return NULL;
}

/* The node whose kernels chose the weight's format. */
static const meg_node *user_of(const meg_graph *g, int value)
{
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            if (g->node[i].in[k] == value) return &g->node[i];
    return NULL;
}

static void copy(const transfer *t, const meg_box *box, void *held, void *plain, bool put)
{
    meg_device *d = meg_engine_device(t->x);
    const meg_graph *g = meg_engine_graph(t->x);
    meg_error e;
    meg_prepared *k = NULL;
    void *at[MEG_OPERANDS] = {NULL};
    bool weight = meg_format_block(t->held->format) == 0;
    int in = put ? MEG_Y : MEG_X, out = put ? MEG_X : MEG_Y; /* of the held side, the plain side */
    meg_request r = {
        .code = MEG_COPY, .graph = g, .node = weight ? user_of(g, t->held->value) : NULL};
    r.box[in] = r.box[out] = *box;
    r.dtype[in] = r.dtype[out] = meg_engine_real(t->x);
    r.format[in] = t->held->format;
    r.format[out] = MEG_FORMAT_PLAIN;
    r.bytes[in] = weight ? t->held->bytes : meg_format_bytes(r.format[in], box, r.dtype[in]);
    r.bytes[out] = meg_format_bytes(MEG_FORMAT_PLAIN, box, r.dtype[out]);
    at[in] = held;
    at[out] = plain;
    if (meg_device_prepare(d, &e, &r, &k) != MEG_OK) abort(); /* it made this format itself */
    meg_device_launch(d, k, at, &(meg_moment){0});
    meg_device_wait(d);
    meg_prepared_free(k);
}

static int64_t samples_per_piece(const transfer *t)
{
    int64_t n = meg_extent(&t->held->box, MEG_N), each = t->held->bytes / n;
    bool plain = t->held->format == MEG_FORMAT_PLAIN;
    if (meg_format_block(t->held->format) == 0 || (plain && t->start)) return n;
    return each >= PIECE ? 1 : PIECE / each;
}

static void pieces(const transfer *t)
{
    const meg_box *shape = &t->held->box;
    meg_dtype real = meg_engine_real(t->x);
    int64_t n = meg_extent(shape, MEG_N), step = samples_per_piece(t);
    char *held = meg_engine_held(t->x, t->held->offset);
    bool plain = t->held->format == MEG_FORMAT_PLAIN;
    int64_t elements = meg_box_size(shape) / n * (step < n ? step : n);
    void *buffer = plain ? NULL : malloc((size_t)(elements * meg_dtype_bytes(real)));
    if (!plain && !buffer) abort();
    for (int64_t i = 0; i < n; i += step) {
        meg_box box = *shape;
        box.lo[MEG_N] = shape->lo[MEG_N] + i;
        box.hi[MEG_N] = shape->lo[MEG_N] + (i + step < n ? i + step : n);
        char *at = held + t->held->bytes / n * i;
        void *data = plain ? at : buffer;
        if (!plain && !t->put) copy(t, &box, at, data, false);
        t->visit(t->context, &box, data);
        if (!plain && t->put) copy(t, &box, at, data, true);
    }
    free(buffer);
}

static bool move(transfer t, int value, meg_role role, int index)
{
    t.held = find(t.x, value, role, index);
    if (!t.held) return false;
    t.value = &meg_engine_graph(t.x)->value[value];
    meg_device_wait(meg_engine_device(t.x));
    pieces(&t);
    return true;
}

bool meg_engine_put(meg_engine *x, int value, meg_role role, int index, meg_visit *put,
                    void *context)
{
    return move((transfer){.x = x, .put = true, .visit = put, .context = context}, value, role,
                index);
}

bool meg_engine_get(meg_engine *x, int value, meg_role role, int index, meg_visit *get,
                    void *context)
{
    return move((transfer){.x = x, .visit = get, .context = context}, value, role, index);
}

/* ---- starting values ---- */

typedef struct start {
    const meg_value *value;
    uint64_t seed;
    meg_dtype real;
} start;

enum {
    RUN = 4096
}; /* elements made at a time */

static void fill_run(const start *s, int64_t first, int64_t count, char *data)
{
    if (meg_stored_fill(&s->value->stored, first, count, s->real == MEG_F64, data)) return;
#pragma omp parallel for schedule(static) if (count > RUN) /* parts of a weight are short runs */
    for (int64_t i = 0; i < count; i += RUN) {
        double run[RUN];
        int64_t length = count - i < RUN ? count - i : RUN;
        meg_start_read(s->value, s->seed, first + i, length, run);
        for (int64_t k = 0; k < length; k++)
            if (s->real == MEG_F64) ((double *)data)[i + k] = run[k];
            else ((float *)data)[i + k] = (float)run[k];
    }
}

static void fill(void *context, const meg_box *box, void *data)
{
    const start *s = context;
    meg_box starts;
    int64_t p[MEG_AXES], run = meg_box_runs(&s->value->shape, box, &starts);
    for (bool on = meg_box_first(&starts, p); on; on = meg_box_next(&starts, p))
        fill_run(s, meg_box_at(&s->value->shape, p), run,
                 (char *)data + meg_box_at(box, p) * meg_dtype_bytes(s->real));
}

/* With the device's number of threads: a rank that keeps to its cores has none for more. */
void meg_engine_start(meg_engine *x, uint64_t seed)
{
    const meg_graph *g = meg_engine_graph(x);
    const meg_plan *p = meg_engine_plan(x);
    int team = omp_get_max_threads();
    omp_set_num_threads(meg_device_threads(meg_engine_device(x)));
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *h = &p->held[i];
        memset(meg_engine_held(x, h->offset), 0, (size_t)h->bytes); /* padding too */
        if (h->role != MEG_ROLE_VALUE) continue;
        const meg_value *v = &g->value[h->value];
        start s = {v, seed, meg_engine_real(x)};
        move((transfer){.x = x, .put = true, .start = true, .visit = fill, .context = &s}, h->value,
             MEG_ROLE_VALUE, 0);
    }
    omp_set_num_threads(team);
}

static bool is_sound(const void *data, int64_t bytes, meg_dtype real)
{
    int64_t count = bytes / meg_dtype_bytes(real);
    double sum = 0; /* stays finite unless a number is not */
#pragma omp parallel for schedule(static) reduction(+ : sum) if (count > RUN)
    for (int64_t i = 0; i < count; i++)
        sum += 0 * (real == MEG_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i]);
    return isfinite(sum);
}

const char *meg_engine_unsound(const meg_engine *x)
{
    const meg_plan *p = meg_engine_plan(x);
    const char *found = NULL;
    int team = omp_get_max_threads();
    omp_set_num_threads(meg_device_threads(meg_engine_device(x)));
    for (int i = 0; i < p->held_slots && !found; i++) {
        const meg_held_slot *h = &p->held[i];
        const meg_value *v = &meg_engine_graph(x)->value[h->value];
        bool changes = h->role == MEG_ROLE_VALUE && v->kind != MEG_FIXED;
        if (changes && !is_sound(meg_engine_held(x, h->offset), h->bytes, meg_engine_real(x)))
            found = v->name;
    }
    omp_set_num_threads(team);
    return found;
}
