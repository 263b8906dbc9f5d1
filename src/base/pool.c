/* Pools: see pool.h. Blocks of at least 64 KiB, chained; nothing is freed before the pool is. */
#include "base/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 64 * 1024,
    ALIGN = 16
};

typedef struct block {
    struct block *next;
    size_t used, size;
} block;

struct meg_pool {
    block *first;
};

static void *must(void *p)
{
    if (p) return p;
    fputs("megalith: out of memory\n", stderr);
    abort();
}

static char *data(block *b)
{
    return (char *)b + (sizeof *b + ALIGN - 1) / ALIGN * ALIGN;
}

meg_pool *meg_pool_new(void)
{
    return must(calloc(1, sizeof(meg_pool)));
}

void meg_pool_free(meg_pool *p)
{
    if (!p) return;
    while (p->first) {
        block *next = p->first->next;
        free(p->first);
        p->first = next;
    }
    free(p);
}

void *meg_pool_alloc(meg_pool *p, size_t bytes)
{
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    block *b = p->first;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;
        b = must(calloc(1, sizeof *b + ALIGN + size));
        b->size = size;
        b->next = p->first;
        p->first = b;
    }
    void *at = data(b) + b->used;
    b->used += bytes;
    return at;
}

char *meg_pool_text(meg_pool *p, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = meg_pool_alloc(p, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

void *meg_grow(void *array, size_t *capacity, size_t needed, size_t element)
{
    if (needed <= *capacity) return array;
    size_t size = *capacity ? 2 * *capacity : 16;
    while (size < needed)
        size *= 2;
    array = must(realloc(array, size * element));
    memset((char *)array + *capacity * element, 0, (size - *capacity) * element);
    *capacity = size;
    return array;
}
