/* The arena: all tensor memory of a device, one mapping, followed by a page that nobody may touch:
 *
 *     |<------- bytes, rounded up to pages ------->|guard|
 *     ^ aligned to a huge page where there are several
 *
 * Pages come when they are first touched, huge ones only where they lie within the arena: what is
 * resident never exceeds it.
 */
#define _GNU_SOURCE
#include "device/device.h"
#include "device/memory.h"

#include <inttypes.h>
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

meg_status meg_device_arena(meg_device *d, meg_error *e, int64_t bytes, int fill, void **out)
{
    MEG_CHECK(e, bytes >= 0, MEG_EARG, "an arena of %" PRId64 " bytes: use 0 or more", bytes);
    /* The kernel would grant it, and kill us, or others, when it is written to. */
    if (bytes > INT64_MAX / 2 || bytes > meg_arena_most()) return no_memory(e, bytes);
    size_t page = page_bytes(), size = round_up((size_t)bytes, page);
    char *arena = reserve(size + page, size >= 2 * huge ? huge : page);
    if (!arena) return no_memory(e, bytes);
    if (size && mprotect(arena, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(arena, size + page);
        return no_memory(e, bytes);
    }
    if (size >= 2 * huge) madvise(arena, size, MADV_HUGEPAGE); /* only a wish */

    const meg_device_kind *kind = meg_device_kind_of(d);
    if (fill) memset(arena, fill, (size_t)bytes);
    if (!fill && kind->released) kind->released(d, arena, bytes); /* fresh is as good as freed */
    *out = arena;
    return MEG_OK;
}

void meg_device_arena_free(meg_device *d, void *arena, int64_t bytes)
{
    if (!arena) return;
    meg_device_wait(d);
    munmap(arena, round_up((size_t)bytes, page_bytes()) + page_bytes());
}

int64_t meg_arena_touched(const void *arena, int64_t bytes, int fill)
{
    const unsigned char *at = arena, byte = (unsigned char)fill;
    uint64_t word, same;
    memset(&same, byte, sizeof same);
    while (bytes >= 8) { /* whole words from the end, as long as nothing was written there */
        memcpy(&word, at + bytes - 8, sizeof word);
        if (word != same) break;
        bytes -= 8;
    }
    while (bytes > 0 && at[bytes - 1] == byte)
        bytes--;
    return bytes;
}
