/* Where nothing fits: what would. Searches again, with less than was asked for, or with more ranks. */
#ifndef MEG_TRAIN_OUTLOOK_REMEDY_H
#define MEG_TRAIN_OUTLOOK_REMEDY_H

#include "plan/search/search.h"

#define MEG_REMEDY "; it would fit " /* so it begins, if there is one */

/* "; it would fit on 8 ranks: stages=4 ..", or that not even so many would do. The pool's. has: ranks of a machine that was
 * described, since more than these are said to be more; 0: it was not. */
const char *meg_remedy_find(const meg_search_ask *ask, int64_t has, meg_pool *pool);

#endif
