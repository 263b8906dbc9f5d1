/* Which build of Megalith this is. */
#ifndef MEG_TRAIN_BUILD_H
#define MEG_TRAIN_BUILD_H

#include <stdint.h>

/* Of the version and of the bytes of the file that this code was loaded from: ranks with another
 * one might make another plan of the same words. */
uint64_t meg_build_hash(void);

#endif
