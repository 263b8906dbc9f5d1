/* Data sets over arrays with names: in the caller's memory, or handed out by him sample by sample.
 *
 * The caller's arrays have their own types; numbers become what is asked for when they are read.
 */
#ifndef MEG_DATA_ARRAYS_H
#define MEG_DATA_ARRAYS_H

#include "data/data.h"

typedef struct meg_arrays {
    int count;
    const meg_tensor *tensor; /* (count) names are copied, data are borrowed */
    const meg_lazy *lazy;     /* NULL: all samples are there */
    const char *name;         /* of the set, for messages */
} meg_arrays;

meg_status meg_dataset_arrays(meg_error *e, const meg_arrays *a, meg_dataset *out);

#endif
