/* The arena as device/ has it; above, it is a name for places (device.h). */
#ifndef MEG_DEVICE_ARENA_H
#define MEG_DEVICE_ARENA_H

#include "device/device.h"

struct meg_arena {
    meg_device *device;
    int64_t bytes;
    int fill;
    /* What the host counts with. On a far device it may not be touched: it is a reservation without
     * access, and the bytes are `distance` further on. Only what runs on a worker adds the distance. */
    char *address;
    int64_t distance;
    meg_staging staging;
    int64_t *staged; /* (stretches): where each begins in the host's memory */
    char *host;      /* of staging.bytes; NULL: none */
};

static inline char *meg_arena_address(const meg_arena *a, int64_t at)
{
    return a->address + at;
}

/* On a worker: the bytes of an address of the arena. */
static inline void *meg_arena_near(const meg_arena *a, void *address)
{
    return a && address ? (char *)address + a->distance : address;
}

int64_t meg_bytes_touched(const void *bytes, int64_t count, int fill);

/* Puts an item on the queue that runs kernels, or on that of fetches and stores (device.c). */
struct meg_queue_item;
void meg_device_put(meg_device *d, const struct meg_queue_item *item);
uint64_t meg_device_move(meg_device *d, const struct meg_queue_item *item); /* its number */
bool meg_device_moved(meg_device *d, uint64_t number);

#endif
