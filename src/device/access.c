/* How an arena's bytes are reached: items of the queues, each run by a worker, which alone knows where a
 * far device's bytes are (device/arena.h). Where host and device share memory a message's staging is the
 * place itself, and nothing is fetched or stored.
 */
#include "device/arena.h"
#include "device/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const int poison =
    0xFF; /* of staging that was stored: what is stored again was received again */

/* ---- in order with launches ---- */

static void run_fill(meg_device *d, const meg_queue_item *item)
{
    (void)d;
    memset(meg_arena_near(item->arena, item->to), item->byte, (size_t)item->bytes);
}

void meg_arena_fill(meg_arena *a, int64_t at, int64_t bytes, int byte)
{
    meg_device_put(a->device, &(meg_queue_item){.run = run_fill,
                                                .arena = a,
                                                .to = meg_arena_address(a, at),
                                                .bytes = bytes,
                                                .byte = byte});
}

static void run_copy(meg_device *d, const meg_queue_item *item)
{
    (void)d;
    memcpy(meg_arena_near(item->arena, item->to), meg_arena_near(item->arena, item->from),
           (size_t)item->bytes);
}

void meg_arena_copy(meg_arena *a, int64_t to, int64_t from, int64_t bytes)
{
    meg_device_put(a->device, &(meg_queue_item){.run = run_copy,
                                                .arena = a,
                                                .to = meg_arena_address(a, to),
                                                .from = meg_arena_address(a, from),
                                                .bytes = bytes});
}

static void run_read(meg_device *d, const meg_queue_item *item)
{
    (void)d;
    memcpy(item->to, meg_arena_near(item->arena, item->from), (size_t)item->bytes);
}

void meg_arena_read(meg_arena *a, int64_t at, int64_t bytes, void *to)
{
    meg_device_put(a->device, &(meg_queue_item){.run = run_read,
                                                .arena = a,
                                                .to = to,
                                                .from = meg_arena_address(a, at),
                                                .bytes = bytes});
}

static void run_write(meg_device *d, const meg_queue_item *item)
{
    (void)d;
    memcpy(meg_arena_near(item->arena, item->to), item->from, (size_t)item->bytes);
}

static void run_release(meg_device *d, const meg_queue_item *item)
{
    meg_device_kind_of(d)->released(d, meg_arena_near(item->arena, item->to), item->bytes);
}

void meg_arena_release(meg_arena *a, int64_t at, int64_t bytes)
{
    if (!meg_device_releases(a->device)) return;
    meg_device_put(a->device, &(meg_queue_item){.run = run_release,
                                                .arena = a,
                                                .to = meg_arena_address(a, at),
                                                .bytes = bytes});
}

/* ---- staging ---- */

static bool is_far(const meg_arena *a)
{
    return meg_device_kind_of(a->device)->far;
}

/* The stretch that begins last of those that do not begin behind `at`. */
static int stretch_of(const meg_staging *s, int64_t at)
{
    int low = 0, high = s->stretches;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (s->stretch[middle].from <= at) low = middle;
        else high = middle;
    }
    return low;
}

void *meg_arena_staging(meg_arena *a, int64_t at)
{
    if (!is_far(a)) return meg_arena_address(a, at);
    const meg_staging *s = &a->staging;
    int i = stretch_of(s, at);
    assert(i < s->stretches && s->stretch[i].from <= at && at < s->stretch[i].to);
    return a->host + a->staged[i] + (at - s->stretch[i].from);
}

static void run_load(meg_device *d, const meg_queue_item *item)
{
    void *to = meg_arena_near(item->arena, item->to);
    item->load(item->argument, item->from ? item->from : to);
    if (item->from) memcpy(to, item->from, (size_t)item->bytes);
    if (item->from && meg_device_releases(d)) memset(item->from, poison, (size_t)item->bytes);
}

void meg_arena_load(meg_arena *a, const meg_stretch *place, meg_filler *load, void *argument)
{
    meg_device_put(a->device,
                   &(meg_queue_item){.run = run_load,
                                     .arena = a,
                                     .load = load,
                                     .argument = argument,
                                     .to = meg_arena_address(a, place->from),
                                     .from = is_far(a) ? meg_arena_staging(a, place->from) : NULL,
                                     .bytes = place->to - place->from});
}

static void run_fetch(meg_device *d, const meg_queue_item *item)
{
    if (meg_device_kind_of(d)->before) meg_device_kind_of(d)->before(d);
    run_read(d, item);
}

/* Nothing moves where the memory is shared. */
static uint64_t move(meg_arena *a, meg_queue_item item)
{
    item.arena = a;
    return is_far(a) ? meg_device_move(a->device, &item) : 0;
}

uint64_t meg_arena_fetch(meg_arena *a, int64_t at, int64_t bytes)
{
    return move(a, (meg_queue_item){.run = run_fetch,
                                    .to = meg_arena_staging(a, at),
                                    .from = meg_arena_address(a, at),
                                    .bytes = bytes});
}

static void run_store(meg_device *d, const meg_queue_item *item)
{
    if (meg_device_kind_of(d)->before) meg_device_kind_of(d)->before(d);
    run_write(d, item);
    if (meg_device_releases(d)) memset(item->from, poison, (size_t)item->bytes);
}

uint64_t meg_arena_store(meg_arena *a, int64_t at, int64_t bytes)
{
    return move(a, (meg_queue_item){.run = run_store,
                                    .to = meg_arena_address(a, at),
                                    .from = meg_arena_staging(a, at),
                                    .bytes = bytes});
}

bool meg_arena_reached(meg_arena *a, uint64_t number)
{
    return meg_device_moved(a->device, number);
}

/* ---- for a while ---- */

void meg_arena_map(meg_arena *a, meg_mapping *m)
{
    if (!is_far(a)) {
        m->data = meg_arena_address(a, m->at);
        meg_device_wait(a->device);
        return;
    }
    m->data = malloc((size_t)m->bytes + 1);
    if (!m->data) abort();
    if (m->reads) meg_arena_read(a, m->at, m->bytes, m->data);
    meg_device_wait(a->device);
}

void meg_arena_unmap(meg_arena *a, meg_mapping *m)
{
    if (is_far(a)) {
        meg_queue_item item = {.run = run_write,
                               .arena = a,
                               .to = meg_arena_address(a, m->at),
                               .from = m->data,
                               .bytes = m->bytes};
        if (m->writes) meg_device_put(a->device, &item);
        meg_device_wait(a->device);
        free(m->data);
    }
    m->data = NULL;
}

/* ---- formats ---- */

/* The plain side is the host's memory: a far device with formats of its own needs room for it there. */
static void convert(meg_arena *a, const meg_formatted *f, void *plain, bool put)
{
    meg_error e;
    meg_prepared *k = NULL;
    void *at[MEG_OPERANDS] = {NULL};
    int own = put ? MEG_Y : MEG_X, other = put ? MEG_X : MEG_Y;
    meg_request r = {.code = MEG_COPY, .graph = f->graph, .node = f->node};
    r.box[own] = r.box[other] = f->box;
    r.dtype[own] = r.dtype[other] = f->dtype;
    r.format[own] = f->format;
    r.format[other] = MEG_FORMAT_PLAIN;
    r.bytes[own] = f->bytes;
    r.bytes[other] = meg_format_bytes(MEG_FORMAT_PLAIN, &f->box, f->dtype);
    at[own] = meg_arena_address(a, f->at);
    at[other] = plain;
    if (meg_device_prepare(a->device, &e, &r, &k) != MEG_OK)
        abort(); /* it made this format itself */
    meg_device_launch(a->device, k, at, &(meg_moment){0});
    meg_device_wait(a->device);
    meg_prepared_free(k);
}

void meg_arena_get(meg_arena *a, const meg_formatted *f, void *plain)
{
    convert(a, f, plain, false);
}

void meg_arena_put(meg_arena *a, const meg_formatted *f, const void *plain)
{
    convert(a, f, (void *)(uintptr_t)plain, true);
}
