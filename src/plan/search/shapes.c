/* Shapes of plans: replicas x stages x mesh x micro-batches x schedule. See search.h.
 *
 * The bound of a shape: its share of the kernels' seconds of one rank, were they cut evenly, times how much
 * longer the schedule's timetable is than the work in it. Messages, and kernels that do not halve, only add; kernels
 * that are quicker in parts (caches) take away, so it is a bound only about.
 */
#include "graph/groups.h"
#include "plan/schedule/schedule.h"
#include "plan/search/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 16,           /* ranks; of more, what takes long to draw is left out: */
    TASKS = 1 << 13,    /* of a timetable */
    MICROS = 14,        /* numbers of micro-batches for a shape */
    MICRO_PER_RANK = 4, /* micro-batches for each rank of a pipeline, at most */
    MESHES = 6,
    CHUNKS = 4
};

typedef struct mesh {
    int size;
    char text[32];
    bool pixels, channels;
    int parts[MEG_AXES];
} mesh;

typedef struct drawn { /* what is known of a timetable */
    const meg_row *row;
    int pipe, chunks, directions;
    int64_t micro;
    double longer; /* than the work in it; 0: there is no such timetable */
    const int *frames;
} drawn;

typedef struct maker {
    const meg_search_ask *ask;
    meg_pool *pool;
    double one;
    meg_plan_options given; /* what the words say, and the defaults */
    bool normalises;
    int pieces;               /* that stages are made of */
    int64_t *divisor, *micro; /* (divisors) of the batch, ascending; room for some of them */
    int divisors;
    meg_box sample;
    meg_shape *list;
    int count;
    size_t room;
    drawn *drawn;
    int draws;
    size_t draw_room;
} maker;

int64_t meg_search_limit(const meg_search_ask *ask)
{
    int64_t least = ask->memory;
    for (int r = 0; ask->limit && r < ask->ranks; r++)
        if (ask->limit[r] < least) least = ask->limit[r];
    return least;
}

bool meg_search_free_word(const meg_search_ask *ask, const char *word)
{
    return !meg_options_has(ask->options, word);
}

/* ---- what a word may be ---- */

static bool free_of(const maker *m, const char *word)
{
    return meg_search_free_word(m->ask, word);
}

/* Micro-batches may not split a group of samples that are normalised together. */
static bool may_cut(const maker *m, int64_t micro)
{
    int64_t each = m->given.batch / micro, norm = m->given.norm ? m->given.norm : m->given.batch;
    return micro == 1 || !m->normalises || each % norm == 0;
}

/* 1 .. batch, ascending. */
static void list_divisors(maker *m)
{
    int64_t batch = m->given.batch, k;
    size_t room = 0;
    for (k = 1; k * k <= batch; k++)
        if (batch % k == 0) room += 2;
    m->divisor = meg_pool_alloc(m->pool, (room + 1) * sizeof *m->divisor);
    m->micro = meg_pool_alloc(m->pool, (room + 1) * sizeof *m->micro);
    for (k = 1; k * k <= batch; k++)
        if (batch % k == 0) m->divisor[m->divisors++] = k;
    for (k--; k >= 1; k--)
        if (batch % k == 0 && k * k < batch) m->divisor[m->divisors++] = batch / k;
}

/* Of too many numbers those go that have others close by; the first and the last stay. */
static int thin(int64_t list[], int count)
{
    for (; count > MICROS; count--) {
        int at = 1;
        for (int i = 2; i + 1 < count; i++) {
            double gap = (double)list[i + 1] / (double)list[i - 1];
            if (gap < (double)list[at + 1] / (double)list[at - 1]) at = i;
        }
        memmove(&list[at], &list[at + 1], (size_t)(count - at - 1) * sizeof *list);
    }
    return count;
}

/* Those that divide the batch, some for each rank of a pipeline; into m->micro. Where memory is short, as small ones as
 * there can be. */
static int list_micros(maker *m, int pipe, int replicas)
{
    int count = 0;
    int64_t most = pipe > 1 ? (int64_t)MICRO_PER_RANK * pipe : 1, each = m->given.batch / replicas;
    if (!free_of(m, "micro")) {
        m->micro[0] = m->given.micro;
        return 1;
    }
    if (m->ask->memory && most < each) most = each;
    if (most > each) most = each;
    for (int i = 0; i < m->divisors && m->divisor[i] <= most; i++)
        if (may_cut(m, m->divisor[i])) m->micro[count++] = m->divisor[i];
    return thin(m->micro, count);
}

static void name_mesh(mesh *out)
{
    static const char letter[MEG_AXES] = {'n', 'c', 'd', 'h', 'w'};
    for (int a = MEG_C; a < MEG_AXES; a++)
        if (out->parts[a] > 1)
            snprintf(out->text + strlen(out->text), sizeof out->text - strlen(out->text), "%c%d",
                     letter[a], out->parts[a]);
}

static mesh mesh_new(int size)
{
    return (mesh){.size = size, .parts = {1, 1, 1, 1, 1}};
}

/* The longest axis of pixels in two, or whatever divides, again and again. */
static bool cut_pixels(const maker *m, int size, mesh *out)
{
    *out = mesh_new(size);
    out->pixels = true;
    for (int left = size, factor = 2; left > 1;) {
        int best = -1;
        double longest = 0;
        while (left % factor)
            factor++;
        for (int a = MEG_D; a < MEG_AXES; a++) {
            double length = (double)meg_extent(&m->sample, a) / (double)(out->parts[a] * factor);
            if (length >= 1 && length > longest) best = a, longest = length;
        }
        if (best < 0) return false;
        out->parts[best] *= factor;
        left /= factor;
    }
    name_mesh(out);
    return true;
}

/* Strips along the longest axis: fewer, longer messages. */
static bool cut_strips(const maker *m, int size, mesh *out)
{
    int axis = MEG_D;
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (meg_extent(&m->sample, a) > meg_extent(&m->sample, axis)) axis = a;
    if (meg_extent(&m->sample, axis) < 2 * (int64_t)size) return false;
    *out = mesh_new(size);
    out->pixels = true;
    out->parts[axis] = size;
    name_mesh(out);
    return true;
}

/* Channels within a node, pixels from node to node: what is summed for each layer stays where messages are quick. */
static bool cut_both(const maker *m, int size, mesh *out)
{
    int inside = (int)m->ask->machine->ranks;
    if (m->ask->ranks <= FEW || inside < 2 || size <= inside || size % inside) return false;
    if (!cut_pixels(m, size / inside, out)) return false;
    *out->text = '\0';
    out->size = size;
    out->channels = true;
    out->parts[MEG_C] = inside;
    name_mesh(out);
    return true;
}

static int list_meshes(const maker *m, int size, mesh out[MESHES])
{
    int count = 0;
    if (size == 1) {
        out[0] = mesh_new(1);
        strcpy(out[0].text, "1");
        return 1;
    }
    if (cut_pixels(m, size, &out[count])) count++;
    if (cut_strips(m, size, &out[count])) {
        bool same = count > 0 && strcmp(out[0].text, out[count].text) == 0;
        count += !same;
    }
    if (cut_both(m, size, &out[count])) count++;
    out[count] = mesh_new(size);
    out[count].channels = true;
    out[count].parts[MEG_C] = size;
    name_mesh(&out[count]);
    return count + 1;
}

/* ---- bounds ---- */

static void draw(const maker *m, drawn *d)
{
    meg_pool *pool = meg_pool_new();
    meg_error e;
    meg_timetable *t = NULL;
    meg_pipe p = {.stages = d->pipe * d->chunks,
                  .ranks = d->pipe,
                  .micro = (int)d->micro,
                  .replications = (int)m->given.replications};
    bool large = (double)p.stages * (double)p.micro > TASKS;
    if ((m->ask->ranks <= FEW || !large) &&
        meg_timetable_draw(&e, pool, d->row, &p, &t) == MEG_OK) {
        double work = 0;
        size_t bytes = (size_t)(t->directions * t->stages) * sizeof(int);
        int *frames = meg_pool_alloc(m->pool, bytes);
        for (int i = 0; i < t->first[1]; i++)
            work += t->task[i].end - t->task[i].start;
        memcpy(frames, t->frames, bytes);
        d->longer = t->makespan / work;
        d->directions = t->directions;
        d->frames = frames;
    }
    meg_pool_free(pool);
}

/* How much longer the pipeline takes than each of its ranks works. */
static drawn drawn_of(maker *m, const drawn *asked)
{
    for (int i = m->draws - 1; i >= 0; i--) {
        const drawn *d = &m->drawn[i];
        if (d->row == asked->row && d->pipe == asked->pipe && d->chunks == asked->chunks &&
            d->micro == asked->micro)
            return *d;
    }
    m->drawn = meg_grow(m->drawn, &m->draw_room, (size_t)m->draws + 1, sizeof *m->drawn);
    m->drawn[m->draws] = *asked;
    draw(m, &m->drawn[m->draws]);
    return m->drawn[m->draws++];
}

/* ---- shapes ---- */

typedef struct pick { /* of a shape, so far */
    int pipe, chunks, replicas;
    int64_t micro;
    const mesh *mesh; /* NULL: as given */
    const meg_row *row;
} pick;

static void add_word(const maker *m, meg_shape *s, const char *word, const char *value)
{
    if (!free_of(m, word)) return;
    s->words = meg_pool_text(m->pool, "%s%s%s=%s", s->words, *s->words ? " " : "", word, value);
    s->count++;
}

static void add_number(const maker *m, meg_shape *s, const char *word, int64_t value, int64_t usual)
{
    char text[24];
    if (value == usual) return;
    snprintf(text, sizeof text, "%" PRId64, value);
    add_word(m, s, word, text);
}

static void add_shape(maker *m, const pick *p)
{
    drawn d = {.row = p->row, .pipe = p->pipe, .chunks = p->chunks, .micro = p->micro};
    if (p->row) d = drawn_of(m, &d);
    else d.longer = d.directions = 1;
    if (d.longer == 0) return;
    meg_shape s = {.words = "",
                   .saver = "",
                   .schedule = p->row ? p->row->name : "",
                   .bound = m->one / m->ask->ranks * d.longer,
                   .stages = p->pipe * p->chunks,
                   .copies = m->ask->ranks / p->pipe,
                   .pipe = p->pipe,
                   .chunks = p->chunks,
                   .replicas = p->replicas,
                   .directions = d.directions,
                   .micro = p->micro,
                   .samples = (double)m->given.batch / (double)(p->micro * p->replicas),
                   .known = p->mesh != NULL,
                   .longer = d.longer,
                   .frames = d.frames,
                   .parts = {1, 1, 1, 1, 1}};
    if (p->mesh) memcpy(s.parts, p->mesh->parts, sizeof s.parts);
    if (p->mesh) s.size = p->mesh->size;
    add_number(m, &s, "stages", p->pipe * p->chunks, 1);
    add_number(m, &s, "chunks", p->chunks, 1);
    if (p->row) add_word(m, &s, "schedule", p->row->name);
    if (p->mesh && p->mesh->size > 1) add_word(m, &s, "mesh", p->mesh->text);
    if (p->mesh) s.pixels = p->mesh->pixels, s.channels = p->mesh->channels;
    else
        s.pixels = strpbrk(m->given.mesh, "dhwx") != NULL,
        s.channels = strchr(m->given.mesh, 'c') != NULL;
    add_number(m, &s, "micro", p->micro, 1);
    m->list = meg_grow(m->list, &m->room, (size_t)m->count + 1, sizeof *m->list);
    m->list[m->count++] = s;
}

/* A schedule that was given, or any that can be drawn; one of several chunks is for those that want them. */
static void add_schedules(maker *m, pick *p)
{
    meg_error e;
    bool given = !free_of(m, "schedule") && strcmp(m->given.schedule, "auto") != 0;
    if (p->pipe == 1 && p->chunks == 1) {
        p->row = NULL;
        add_shape(m, p);
        return;
    }
    if (given) {
        if (meg_row_find(&e, m->given.schedule, &p->row) == MEG_OK) add_shape(m, p);
        return;
    }
    for (int i = 0; (p->row = meg_row_at(i)); i++)
        add_shape(m, p);
}

static void add_micros(maker *m, pick *p)
{
    int count = list_micros(m, p->pipe, p->replicas);
    for (int i = 0; i < count; i++) {
        p->micro = m->micro[i];
        add_schedules(m, p);
    }
}

static void add_meshes(maker *m, pick *p, int left)
{
    mesh meshes[MESHES];
    if (!free_of(m, "mesh")) { /* how many ranks it wants, the plan knows */
        p->mesh = NULL;
        p->replicas = 1;
        add_micros(m, p);
        return;
    }
    for (int size = 1; size <= left; size++) {
        if (left % size) continue;
        p->replicas = left / size;
        if (!free_of(m, "replicas") && m->given.replicas && m->given.replicas != p->replicas)
            continue;
        if (p->replicas > m->given.batch) continue;
        int count = list_meshes(m, size, meshes);
        for (int i = 0; i < count; i++) {
            p->mesh = &meshes[i];
            add_micros(m, p);
        }
    }
}

/* As many stages on a rank as chunks says. */
static void add_pipes(maker *m)
{
    bool stages = free_of(m, "stages"), chunks = free_of(m, "chunks");
    for (int c = 1; c <= (chunks ? CHUNKS : (int)m->given.chunks); c *= 2)
        for (int pipe = 1; pipe <= m->ask->ranks; pipe++) {
            int64_t all = (int64_t)pipe * c;
            bool known = !stages && m->given.stages != all;
            bool fixed = !chunks && m->given.chunks != c;
            if (m->ask->ranks % pipe && free_of(m, "mesh")) continue;
            if (known || fixed || all > m->pieces || all > MEG_STAGES) continue;
            if (c > 1 && pipe == 1) continue;
            pick p = {.pipe = pipe, .chunks = c};
            add_meshes(m, &p, m->ask->ranks / pipe);
        }
}

static int by_bound(const void *a, const void *b)
{
    const meg_shape *x = a, *y = b;
    if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return strcmp(x->words, y->words);
}

static void look_at(maker *m)
{
    const meg_graph *g = m->ask->graph;
    m->normalises = meg_graph_normalises(g);
    for (int i = g->values - 1; i >= 0; i--)
        if (g->value[i].kind == MEG_INPUT) m->sample = g->value[i].shape;
    meg_groups *groups = meg_groups_new(g, (meg_level)m->given.level);
    m->pieces = groups->count;
    meg_groups_free(groups);
    list_divisors(m);
}

int meg_search_shapes(const meg_search_ask *ask, meg_pool *pool, const meg_plan_options *given,
                      double one, meg_shape **out)
{
    maker m = {.ask = ask, .pool = pool, .one = one, .given = *given};
    look_at(&m);
    add_pipes(&m);
    if (m.count) qsort(m.list, (size_t)m.count, sizeof *m.list, by_bound);
    free(m.drawn);
    *out = m.list;
    return m.count;
}
