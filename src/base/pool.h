/* A pool owns many small objects and frees them in one stroke: graphs, plans and programs live in
 * one each. Tensor memory never comes from here but from the device's arena.
 */
#ifndef MEG_BASE_POOL_H
#define MEG_BASE_POOL_H

#include <stddef.h>

typedef struct meg_pool meg_pool;

meg_pool *meg_pool_new(void); /* ends the process with a message when there is no memory */
void meg_pool_free(meg_pool *p);

void *meg_pool_alloc(meg_pool *p, size_t bytes); /* zeroed, aligned to 16; never NULL */
char *meg_pool_text(meg_pool *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For growing arrays outside a pool: at least doubles; never NULL. */
void *meg_grow(void *array, size_t *capacity, size_t needed, size_t element);

#endif
