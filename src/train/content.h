/* Ranks read their parts of the data each from its own files. That these are the same is seen by some
 * samples and labels of them, whatever their names are and wherever they lie.
 */
#ifndef MEG_TRAIN_CONTENT_H
#define MEG_TRAIN_CONTENT_H

#include "train/context.h"

/* Collective. Does every rank have the data of rank 0? `reads`: this one will read some; one that does not, where
 * others read for it (feed=reader), need not have any. */
meg_status meg_data_same(const meg_data *d, bool reads);

#endif
