/* Open spans: see spans.h. */
#include "plan/events/spans.h"

#include <stdlib.h>
#include <string.h>

typedef struct meg_open_list list;

static int size_of(int64_t lo, int64_t hi)
{
    int size = 0;
    while (size < MEG_SPAN_SIZES - 2 && (hi - lo) >> (size + 1) > 0)
        size++;
    return size;
}

/* The first that begins at lo with this number or a larger one, or behind. */
static int seat_of(const list *l, int64_t lo, int number)
{
    int first = 0, end = l->count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        const meg_open_span *s = &l->at[middle];
        if (s->lo < lo || (s->lo == lo && s->number < number)) first = middle + 1;
        else end = middle;
    }
    return first;
}

/* ---- cells ---- */

void meg_open_over(meg_open_spans *s, int64_t bytes)
{
    int shift = 0;
    while (bytes >> shift > MEG_SPAN_CELLS - 2)
        shift++;
    for (int i = 0; i < 2; i++) {
        meg_open_map *m = &s->map[i];
        m->shift = shift + i * MEG_SPAN_LONG;
        m->taken = calloc(MEG_SPAN_CELLS / 64, sizeof *m->taken);
        m->touching = calloc(MEG_SPAN_CELLS, sizeof *m->touching);
        if (!m->taken || !m->touching) abort();
    }
}

/* Cells of lo..hi, the first one and how many; a stretch of no bytes has the one that it lies in. */
static int cells_of(const meg_open_map *m, int64_t lo, int64_t hi, int64_t *first)
{
    int64_t last = (hi > lo ? hi - 1 : lo) >> m->shift;
    *first = lo >> m->shift;
    return last - *first >= MEG_SPAN_CELLS ? MEG_SPAN_CELLS : (int)(last - *first) + 1;
}

static void touch_cells(meg_open_spans *s, int64_t lo, int64_t hi, int by)
{
    meg_open_map *m = &s->map[(hi - lo) >> s->map[0].shift >= 1 << MEG_SPAN_LONG];
    int64_t first = 0;
    int count = m->taken ? cells_of(m, lo, hi, &first) : 0;
    for (int64_t i = first; i < first + count; i++) {
        size_t cell = (size_t)i % MEG_SPAN_CELLS;
        uint64_t bit = (uint64_t)1 << cell % 64;
        m->touching[cell] += by;
        if (m->touching[cell]) m->taken[cell / 64] |= bit;
        else m->taken[cell / 64] &= ~bit;
    }
}

static bool is_clear(const meg_open_map *m, int64_t lo, int64_t hi)
{
    int64_t first;
    int count = cells_of(m, lo, hi, &first);
    size_t cell = (size_t)first % MEG_SPAN_CELLS;
    while (count > 0) {
        int here = 64 - (int)(cell % 64); /* to the end of the word */
        uint64_t bits = m->taken[cell / 64] >> cell % 64;
        if (count < here) bits &= ((uint64_t)1 << count) - 1;
        if (bits) return false;
        count -= here;
        cell = (cell + (size_t)here) % MEG_SPAN_CELLS;
    }
    return true;
}

/* ---- spans ---- */

void meg_open_add(meg_open_spans *s, int64_t lo, int64_t hi, int number)
{
    int size = size_of(lo, hi);
    list *l = &s->size[size];
    int at = seat_of(l, lo, number);
    s->sizes |= (uint64_t)1 << size;
    l->at = meg_grow(l->at, &l->room, (size_t)l->count + 1, sizeof *l->at);
    memmove(l->at + at + 1, l->at + at, (size_t)(l->count++ - at) * sizeof *l->at);
    l->at[at] = (meg_open_span){lo, hi, number};
    touch_cells(s, lo, hi, 1);
    s->count++;
}

void meg_open_drop(meg_open_spans *s, int64_t lo, int64_t hi, int number)
{
    int size = size_of(lo, hi);
    list *l = &s->size[size];
    int at = seat_of(l, lo, number);
    if (l->count == 1) s->sizes &= ~((uint64_t)1 << size);
    memmove(l->at + at, l->at + at + 1, (size_t)(--l->count - at) * sizeof *l->at);
    touch_cells(s, lo, hi, -1);
    s->count--;
}

int meg_open_find(const meg_open_spans *s, int64_t lo, int64_t hi, int count, int **out,
                  size_t *room)
{
    bool mapped = s->map[0].taken != NULL;
    if (mapped && is_clear(&s->map[0], lo, hi) && is_clear(&s->map[1], lo, hi)) return count;
    for (uint64_t sizes = s->sizes; sizes; sizes &= sizes - 1) {
        int i = __builtin_ctzll(sizes);
        const list *l = &s->size[i];
        int64_t longest = i < MEG_SPAN_SIZES - 2 ? (int64_t)2 << i : INT64_MAX;
        for (int k = seat_of(l, lo < longest ? 0 : lo - longest, 0); k < l->count; k++) {
            if (l->at[k].lo >= hi) break;
            if (l->at[k].hi <= lo) continue;
            *out = meg_grow(*out, room, (size_t)count + 1, sizeof **out);
            (*out)[count++] = l->at[k].number;
        }
    }
    return count;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

int meg_open_sort(int *number, int count)
{
    int kept = 0;
    if (count > 1) qsort(number, (size_t)count, sizeof *number, by_number);
    for (int i = 0; i < count; i++)
        if (kept == 0 || number[kept - 1] != number[i]) number[kept++] = number[i];
    return kept;
}

void meg_open_free(meg_open_spans *s)
{
    for (int i = 0; i < MEG_SPAN_SIZES; i++)
        free(s->size[i].at);
    for (int i = 0; i < 2; i++) {
        free(s->map[i].taken);
        free(s->map[i].touching);
    }
    *s = (meg_open_spans){0};
}
