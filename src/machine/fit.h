/* Models of families of kernels, fitted to measurements: non-negative least squares of relative errors.
 * No term may be negative: more work never costs less, and what lies outside the measured shapes stays
 * sensible.
 */
#ifndef MEG_MACHINE_FIT_H
#define MEG_MACHINE_FIT_H

#include "machine/prices.h"

typedef struct meg_fit_sample {
    double figure[MEG_TERMS];
    double seconds; /* above 0 */
    double weight;  /* 1: measured; less: a belief, which does not count in the error */
} meg_fit_sample;

/* The model of one family from `count` samples, at least 1 of them measured. Sets terms, error and samples. */
void meg_fit(const meg_fit_sample *s, int count, meg_price_model *out);

#endif
