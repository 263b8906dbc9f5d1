/* How much memory this machine has for us. */
#ifndef MEG_MACHINE_MEMORY_H
#define MEG_MACHINE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_memory { /* bytes; INT64_MAX: not known */
    int64_t most;           /* with what it may swap */
    int64_t free;           /* now */
    bool limited;   /* by a control group, or by MEGALITH_MEMORY, to less than the machine has */
    uint64_t owner; /* whose `most` is: a hash of the group, or of the wish; 0: the machine's */
} meg_memory;

/* `root` stands before /proc and /sys: "" but in tests. */
meg_memory meg_memory_look(const char *root);

/* Bytes of memory that this process has now; 0: not known. */
int64_t meg_memory_used(const char *root);

#endif
