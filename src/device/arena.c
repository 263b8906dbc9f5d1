/* The arena: all tensor memory of a device, one mapping, followed by a page that nobody may touch:
 *
 *     |<------- bytes, rounded up to pages ------->|guard|
 *     ^ aligned to a huge page where there are several
 *
 * Pages come when they are first touched, huge ones only where they lie within the arena: what is
 * resident never exceeds it.
 *
 * A far arena has its addresses twice, as memory on another board would have them: one range that
 * nobody may touch, whose addresses the host counts with, and the mapping, which only workers know.
 */
#define _GNU_SOURCE
#include "device/arena.h"
#include "machine/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t huge = (size_t)2 << 20;

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Reserves `size` bytes of addresses, aligned: reserves more and gives back both ends. */
static char *reserve(size_t size, size_t align)
{
    size_t spare = align - page_bytes();
    char *all = mmap(NULL, size + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0);
    if (all == MAP_FAILED) return NULL;
    size_t head = round_up((size_t)(uintptr_t)all, align) - (size_t)(uintptr_t)all;
    if (head) munmap(all, head);
    if (spare > head) munmap(all + head + size, spare - head);
    return all + head;
}

int64_t meg_arena_most(void)
{
    return meg_memory_look("").most;
}

static meg_status no_memory(meg_error *e, int64_t bytes)
{
    char text[32], all[32];
    meg_print_bytes(bytes, text);
    meg_print_bytes(meg_arena_most(), all);
    return meg_fail(e, MEG_ENOMEM,
                    "no memory for an arena of %" PRId64 " bytes (%s); the machine has %s for "
                    "this process: `megalith plan` says what would fit",
                    bytes, text, all);
}

/* A mapping with a page behind it that nobody may touch; NULL: there is no memory. */
static char *map_bytes(int64_t bytes)
{
    size_t page = page_bytes(), size = round_up((size_t)bytes, page);
    char *at = reserve(size + page, size >= 2 * huge ? huge : page);
    if (!at) return NULL;
    if (size && mprotect(at, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(at, size + page);
        return NULL;
    }
    if (size >= 2 * huge) madvise(at, size, MADV_HUGEPAGE); /* only a wish */
    return at;
}

static void unmap_bytes(char *at, int64_t bytes)
{
    if (at) munmap(at, round_up((size_t)bytes, page_bytes()) + page_bytes());
}

static bool map_arena(meg_arena *a, bool far)
{
    char *at = map_bytes(a->bytes);
    a->address = at;
    if (!at || !far) return at;
    a->address = reserve(round_up((size_t)a->bytes, page_bytes()) + page_bytes(), page_bytes());
    if (a->address) a->distance = at - a->address;
    else unmap_bytes(at, a->bytes);
    return a->address;
}

/* The host's memory of a far device, poisoned: what is sent was fetched, what is stored was received. */
static bool map_staging(meg_arena *a, const meg_staging *s)
{
    size_t count = (size_t)s->stretches;
    a->staging = *s;
    a->staging.stretch = malloc((count + 1) * sizeof *s->stretch);
    a->staged = malloc((count + 1) * sizeof *a->staged);
    a->host = map_bytes(s->bytes);
    if (!a->staging.stretch || !a->staged || !a->host) return false;
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        a->staging.stretch[i] = s->stretch[i];
        a->staged[i] = at;
        at += s->stretch[i].to - s->stretch[i].from;
    }
    memset(a->host, 0xFF, (size_t)s->bytes);
    return true;
}

meg_status meg_arena_new(meg_device *d, meg_error *e, const meg_arena_spec *spec, meg_arena **out)
{
    int64_t bytes = spec->bytes;
    bool far = meg_device_kind_of(d)->far;
    MEG_CHECK(e, bytes >= 0, MEG_EARG, "an arena of %" PRId64 " bytes: use 0 or more", bytes);
    /* The kernel would grant it, and kill us, or others, when it is written to. */
    if (bytes > INT64_MAX / 2 || bytes > meg_arena_most()) return no_memory(e, bytes);
    meg_arena *a = calloc(1, sizeof *a);
    if (!a) return no_memory(e, bytes);
    *a = (meg_arena){.device = d, .bytes = bytes, .fill = spec->fill};
    if (!map_arena(a, far) || (far && spec->staging && !map_staging(a, spec->staging))) {
        meg_arena_free(a);
        return no_memory(e, bytes);
    }
    if (spec->fill) meg_arena_fill(a, 0, bytes, spec->fill);
    else meg_arena_release(a, 0, bytes); /* fresh is as good as freed */
    meg_device_wait(d);
    *out = a;
    return MEG_OK;
}

void meg_arena_free(meg_arena *a)
{
    if (!a) return;
    meg_device_wait(a->device);
    if (a->address) unmap_bytes(a->address + a->distance, a->bytes);
    if (a->distance) unmap_bytes(a->address, a->bytes);
    unmap_bytes(a->host, a->staging.bytes);
    free(a->staging.stretch);
    free(a->staged);
    free(a);
}

/* ---- what was touched ---- */

int64_t meg_bytes_touched(const void *bytes, int64_t count, int fill)
{
    const unsigned char *at = bytes, byte = (unsigned char)fill;
    uint64_t word, same;
    memset(&same, byte, sizeof same);
    while (count >= 8) { /* whole words from the end, as long as nothing was written there */
        memcpy(&word, at + count - 8, sizeof word);
        if (word != same) break;
        count -= 8;
    }
    while (count > 0 && at[count - 1] == byte)
        count--;
    return count;
}

typedef struct question {
    const meg_arena *arena;
    int64_t touched;
} question;

static void look(void *argument) /* on the worker */
{
    question *q = argument;
    const meg_arena *a = q->arena;
    q->touched = meg_bytes_touched(meg_arena_near(a, a->address), a->bytes, a->fill);
}

int64_t meg_arena_touched(meg_arena *a)
{
    question q = {.arena = a};
    meg_device_call(a->device, look, &q);
    meg_device_wait(a->device);
    return q.touched;
}
