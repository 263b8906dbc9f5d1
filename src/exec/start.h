/* What parameters and states start with: numbers of a file, or drawn ones. The same for every plan,
 * since draws are keyed by seed, name and element.
 */
#ifndef MEG_EXEC_START_H
#define MEG_EXEC_START_H

#include "graph/graph.h"

/* Elements first .. first + count - 1 of the value. Drawn ones are floats. */
void meg_start_read(const meg_value *v, uint64_t seed, int64_t first, int64_t count, double *out);

#endif
