/* Memory seen from outside: held weights, gradients and optimizer states in plain format; outputs of a step.
 *
 * Formats that block channels keep samples apart, so such values are handed over in slices along n
 * and need little working memory, however large they are; weight formats go whole (they belong to
 * convolutions, which are small).
 */
#include "exec/engine.h"
#include "exec/start.h"
#include "plan/program/walk.h"

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

/* Of a piece in a format of the device's. */
static meg_formatted formatted(const transfer *t, const meg_box *box, int64_t at)
{
    const meg_graph *g = meg_engine_graph(t->x);
    bool weight = meg_format_block(t->held->format) == 0;
    meg_dtype real = meg_engine_real(t->x);
    return (meg_formatted){.graph = g,
                           .node = weight ? user_of(g, t->held->value) : NULL,
                           .box = *box,
                           .dtype = real,
                           .format = t->held->format,
                           .at = at,
                           .bytes = weight ? t->held->bytes
                                           : meg_format_bytes(t->held->format, box, real)};
}

static int64_t samples_per_piece(const transfer *t)
{
    int64_t n = meg_extent(&t->held->box, MEG_N), each = t->held->bytes / n;
    bool plain = t->held->format == MEG_FORMAT_PLAIN;
    if (meg_format_block(t->held->format) == 0 || (plain && t->start)) return n;
    return each >= PIECE ? 1 : PIECE / each;
}

static int64_t place_of(const meg_engine *x, const meg_held_slot *h)
{
    return meg_plan_base(meg_engine_plan(x), MEG_HELD) + h->offset;
}

static void visit_plain(const transfer *t, const meg_box *box, int64_t at)
{
    meg_arena *a = meg_engine_arena(t->x);
    int64_t bytes = meg_format_bytes(MEG_FORMAT_PLAIN, box, meg_engine_real(t->x));
    meg_mapping m = {.at = at, .bytes = bytes, .reads = !t->put, .writes = t->put};
    meg_arena_map(a, &m);
    t->visit(t->context, box, m.data);
    meg_arena_unmap(a, &m);
}

static void visit_formatted(const transfer *t, const meg_box *box, int64_t at, void *buffer)
{
    meg_arena *a = meg_engine_arena(t->x);
    meg_formatted f = formatted(t, box, at);
    if (!t->put) meg_arena_get(a, &f, buffer);
    t->visit(t->context, box, buffer);
    if (t->put) meg_arena_put(a, &f, buffer);
}

static void pieces(const transfer *t)
{
    const meg_box *shape = &t->held->box;
    int64_t n = meg_extent(shape, MEG_N), step = samples_per_piece(t);
    int64_t first = place_of(t->x, t->held);
    bool plain = t->held->format == MEG_FORMAT_PLAIN;
    int64_t elements = meg_box_size(shape) / n * (step < n ? step : n);
    void *buffer = plain ? NULL
                         : malloc((size_t)(elements * meg_dtype_bytes(meg_engine_real(t->x))));
    if (!plain && !buffer) abort();
    for (int64_t i = 0; i < n; i += step) {
        meg_box box = *shape;
        box.lo[MEG_N] = shape->lo[MEG_N] + i;
        box.hi[MEG_N] = shape->lo[MEG_N] + (i + step < n ? i + step : n);
        int64_t at = first + t->held->bytes / n * i;
        if (plain) visit_plain(t, &box, at);
        else visit_formatted(t, &box, at, buffer);
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

/* ---- what a step leaves ---- */

/* A station's share lies micro-batch behind micro-batch. */
static void visit_kept(meg_engine *x, const meg_station *t, const meg_slot *s, meg_visit *get,
                       void *context)
{
    const meg_entry *e = t->entry;
    int ordinal = 0;
    for (int m = 0; m < e->micro; m++) {
        if (e->timetable->direction[m] != t->direction) continue;
        meg_line line = {.ordinal = ordinal++};
        meg_box box = s->box;
        box.lo[MEG_N] += m * e->graph->batch;
        box.hi[MEG_N] += m * e->graph->batch;
        meg_mapping map = {.at = meg_slot_place(meg_engine_plan(x), t, s, &line),
                           .bytes = s->bytes,
                           .reads = true};
        meg_arena_map(meg_engine_arena(x), &map);
        get(context, &box, map.data);
        meg_arena_unmap(meg_engine_arena(x), &map);
    }
}

void meg_engine_kept(meg_engine *x, const meg_kept *what, meg_visit *get, void *context)
{
    const meg_entry *e = &meg_engine_plan(x)->entry[what->entry];
    meg_device_wait(meg_engine_device(x));
    for (int k = 0; k < e->stations && !e->idle; k++)
        for (int s = 0; s < e->station[k].slots; s++) {
            const meg_slot *slot = &e->station[k].slot[s];
            if (slot->role == what->role && slot->index == what->index)
                visit_kept(x, &e->station[k], slot, get, context);
        }
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
        meg_arena_fill(meg_engine_arena(x), place_of(x, h), h->bytes, 0); /* padding too */
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
        if (h->role != MEG_ROLE_VALUE || v->kind == MEG_FIXED) continue; /* it does not change */
        meg_mapping m = {.at = place_of(x, h), .bytes = h->bytes, .reads = true};
        meg_arena_map(meg_engine_arena(x), &m);
        if (!is_sound(m.data, h->bytes, meg_engine_real(x))) found = v->name;
        meg_arena_unmap(meg_engine_arena(x), &m);
    }
    omp_set_num_threads(team);
    return found;
}
