/* Sets of processors (hardware threads), by the numbers that the system gives them. */
#ifndef MEG_MACHINE_PROCESSORS_H
#define MEG_MACHINE_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MEG_PROCESSORS = 1024 /* at most: their numbers are below */
};

typedef struct meg_processors { /* plain data: ranks send it to one another */
    uint64_t bits[MEG_PROCESSORS / 64];
} meg_processors;

/* Those that the calling thread may use; where the system does not say, the first one. */
meg_processors meg_processors_mine(void);

/* The calling thread, and all that it makes later, keep to these. False: that is not allowed, and
 * nothing has changed. */
bool meg_processors_keep(const meg_processors *p);

/* A number of the running system: processors of the same number are the same ones in all containers of it. 0: not
 * known. */
uint64_t meg_processors_system(void);

int meg_processors_count(const meg_processors *p);
bool meg_processors_equal(const meg_processors *a, const meg_processors *b);

static inline bool meg_processors_has(const meg_processors *p, int number)
{
    return p->bits[number / 64] >> (number % 64) & 1;
}

static inline void meg_processors_add(meg_processors *p, int number)
{
    p->bits[number / 64] |= (uint64_t)1 << (number % 64);
}

#endif
