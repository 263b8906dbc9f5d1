/* Numbers that reductions combine. */
#ifndef MEG_COMM_NUMBER_H
#define MEG_COMM_NUMBER_H

#include <stdint.h>

typedef enum meg_number {
    MEG_NUMBER_F32,
    MEG_NUMBER_F64,
    MEG_NUMBER_I32,
    MEG_NUMBER_I64,
    MEG_NUMBERS
} meg_number;

typedef enum meg_combine {
    MEG_COMBINE_SUM,
    MEG_COMBINE_MAX,
    MEG_COMBINES
} meg_combine;

typedef struct meg_numbers { /* an array of them */
    void *data;
    int64_t count;
    meg_number type;
} meg_numbers;

int64_t meg_number_bytes(meg_number type);

/* into[i] = into[i] combined with from[i]. Sums of integers wrap around. A maximum passes a NaN of
 * either side on. */
void meg_numbers_combine(meg_combine how, meg_number type, void *into, const void *from,
                         int64_t count);

#endif
