/* What all kinds of devices share: the registry, opening, describing, preparing, and launching on
 * the queue. A kind answers first; what it leaves, plain C serves (device/plain.c).
 */
#include "device/device.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/registry.h"
#include "device/arena.h"
#include "device/queue.h"
#include "machine/processors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct meg_device {
    const meg_device_kind *kind;
    int threads;
    void *state; /* of the kind */
    meg_queue *queue;
    meg_queue *mover; /* fetches and stores; NULL: host and device share memory */
    meg_observer *observer;
    double (*clock)(void); /* of the observer */
    void *context;
};

static const meg_device_kind *const table[] = {
#define MEG_DEVICE(id) &meg_device_##id,
#include "device/devices.def"
#undef MEG_DEVICE
};

enum {
    THREADS_MAX = 4096
};

MEG_REGISTRY_AT(meg_device_kind, meg_device_kind_at, table)
MEG_REGISTRY_FIND(meg_device_kind, meg_device_kind_find, meg_device_kind_at)

/* ---- opening and closing ---- */

static MEG_REGISTRY_NAME(name_at, meg_device_kind_at)

    static int processors(void)
{
    meg_processors mine = meg_processors_mine();
    return meg_processors_count(&mine);
}

meg_status meg_device_open(meg_error *e, const char *kind, int threads, meg_device **out)
{
    const meg_device_kind *found = meg_device_kind_find(kind);
    if (!found) return meg_unknown(e, "unknown device", kind, name_at);
    MEG_CHECK(e, threads >= 0 && threads <= THREADS_MAX, MEG_EARG,
              "threads=%d: use 1..%d, or 0 for one per processor", threads, THREADS_MAX);
    meg_device *d = calloc(1, sizeof *d);
    MEG_CHECK(e, d, MEG_ENOMEM, "no memory for a device: %zu bytes", sizeof *d);
    d->kind = found;
    d->clock = meg_clock;
    d->threads = threads ? threads : processors();

    meg_status status = meg_queue_new(e, d, d->threads, &d->queue);
    if (status == MEG_OK && found->far) status = meg_queue_new(e, d, 1, &d->mover);
    if (status == MEG_OK && found->open) {
        meg_error_clear(e);
        d->state = found->open(d, e);
        status = e->status;
    }
    if (status != MEG_OK) {
        meg_queue_free(d->queue);
        meg_queue_free(d->mover);
        free(d);
        return meg_trail(e, status, __func__);
    }
    *out = d;
    return MEG_OK;
}

void meg_device_close(meg_device *d)
{
    if (!d) return;
    meg_queue_free(d->queue);
    meg_queue_free(d->mover);
    if (d->kind->close) d->kind->close(d->state);
    free(d);
}

const meg_device_kind *meg_device_kind_of(const meg_device *d)
{
    return d->kind;
}

int meg_device_threads(const meg_device *d)
{
    return d->threads;
}

void *meg_device_state(const meg_device *d)
{
    return d->state;
}

meg_dtype meg_device_real(const meg_device *d)
{
    return d->kind->real;
}

/* ---- kernels ---- */

void meg_device_describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    *s = (meg_spec){0};
    if (d->kind->describe && d->kind->describe(d, r, s)) return;
    meg_plain_describe(r, s);
}

meg_status meg_device_prepare(meg_device *d, meg_error *e, const meg_request *r, meg_prepared **out)
{
    meg_prepared *k = calloc(1, sizeof *k);
    MEG_CHECK(e, k, MEG_ENOMEM, "no memory for a kernel: %zu bytes", sizeof *k);
    k->request = *r;
    meg_device_describe(d, r, &k->spec);
    meg_status status = MEG_OK;
    if (!d->kind->prepare || !d->kind->prepare(d, r, &k->spec, k))
        status = meg_plain_prepare(d, e, r, k);
    if (status != MEG_OK) {
        free(k);
        return meg_trail(e, status, __func__);
    }
    *out = k;
    return MEG_OK;
}

void meg_prepared_free(meg_prepared *k)
{
    if (!k) return;
    if (k->free_own) k->free_own(k->own);
    free(k);
}

/* ---- the queues ---- */

/* Working memory is in use to its end, also where a library asks for more than it writes to: so it counts
 * as touched. */
static void own_scratch(const meg_prepared *k, char *scratch)
{
    int64_t bytes = scratch ? meg_operand_bytes(&k->request, &k->spec, MEG_SCRATCH) : 0;
    if (bytes > 0) scratch[bytes - 1] = 0;
}

static void run_kernel(meg_device *d, const meg_queue_item *item)
{
    const meg_prepared *k = item->kernel;
    void *at[MEG_OPERANDS];
    for (int i = 0; i < MEG_OPERANDS; i++)
        at[i] = meg_arena_near(item->arena, item->at[i]);
    if (d->kind->before) d->kind->before(d);
    own_scratch(k, at[MEG_SCRATCH]);
    if (!d->observer) {
        k->run(k, at, &item->moment);
        return;
    }
    double start = d->clock();
    k->run(k, at, &item->moment);
    d->observer(d->context, k, start, d->clock() - start);
}

void meg_arena_launch(meg_arena *a, const meg_prepared *k, const int64_t at[MEG_OPERANDS],
                      const meg_moment *m)
{
    meg_queue_item item = {.run = run_kernel, .arena = a, .kernel = k, .moment = *m};
    for (int i = 0; i < MEG_OPERANDS; i++)
        item.at[i] = at[i] < 0 ? NULL : meg_arena_address(a, at[i]);
    meg_queue_put(a->device->queue, &item);
}

void meg_device_launch(meg_device *d, const meg_prepared *k, void *const at[MEG_OPERANDS],
                       const meg_moment *m)
{
    assert(!d->kind->far);
    meg_queue_item item = {.run = run_kernel, .kernel = k, .moment = *m};
    memcpy(item.at, at, sizeof item.at);
    meg_queue_put(d->queue, &item);
}

static void run_call(meg_device *d, const meg_queue_item *item)
{
    (void)d;
    item->function(item->argument);
}

void meg_device_call(meg_device *d, void (*function)(void *), void *argument)
{
    meg_queue_put(d->queue,
                  &(meg_queue_item){.run = run_call, .function = function, .argument = argument});
}

void meg_device_put(meg_device *d, const meg_queue_item *item)
{
    meg_queue_put(d->queue, item);
}

uint64_t meg_device_move(meg_device *d, const meg_queue_item *item)
{
    meg_queue_put(d->mover, item);
    return meg_queue_look(d->mover).put;
}

bool meg_device_moved(meg_device *d, uint64_t number)
{
    return number == 0 || meg_queue_look(d->mover).done >= number;
}

void meg_device_wait(meg_device *d)
{
    meg_queue_wait(d->queue);
    if (d->mover) meg_queue_wait(d->mover);
}

/* An idle worker reads the device only after the next put, so setting it here is no race. */
void meg_device_observe(meg_device *d, meg_observer *observer, void *context)
{
    meg_device_wait(d);
    d->observer = observer;
    d->context = context;
}

void meg_device_clock(meg_device *d, double (*clock)(void))
{
    meg_device_wait(d);
    d->clock = clock ? clock : meg_clock;
}

meg_pace meg_device_look(meg_device *d)
{
    meg_queue_state s = meg_queue_look(d->queue);
    meg_queue_state m = d->mover ? meg_queue_look(d->mover) : (meg_queue_state){0};
    return (meg_pace){s.put, s.done, s.room, m.done < m.put};
}

void meg_device_watch(meg_device *d, uint64_t done, void (*wake)(void *), void *context)
{
    meg_queue_watch(d->queue, wake ? done : 0, wake, context);
    if (!d->mover) return;
    meg_queue_state m = meg_queue_look(d->mover);
    meg_queue_watch(d->mover, wake && m.done < m.put ? m.put : 0, wake, context);
}

bool meg_device_releases(const meg_device *d)
{
    return d->kind->released;
}
