/* Files of other frameworks, given where a network or its weights are wanted: what they are, and
 * how to make of them what can be read.
 */
#ifndef MEG_IMPORT_FOREIGN_H
#define MEG_IMPORT_FOREIGN_H

#include "base/status.h"

/* Refuses a file that is known not to be a network, by its name; MEG_OK: it may be one. */
meg_status meg_foreign_model(meg_error *e, const char *path);

/* The file could not be read as safetensors: says why, if its name or its first bytes tell, else
 * leaves `e` as it is. Returns its status. */
meg_status meg_foreign_weights(meg_error *e, const char *path);

#endif
