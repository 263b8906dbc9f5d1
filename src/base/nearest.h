/* The word that was meant: for every message about a name that is not known, be it a command, an
 * option, the value of one, a model, a device.
 */
#ifndef MEG_BASE_NEAREST_H
#define MEG_BASE_NEAREST_H

#include "base/status.h"

enum {
    MEG_HINT = 256
};

typedef struct meg_nearest {
    const char *asked;
    const char *word; /* the nearest of those tried; NULL: none is near */
    const char *why;  /* what is to be said of it; NULL: nothing */
    int distance;
} meg_nearest;

meg_nearest meg_nearest_to(const char *asked);

/* Is this the one? What other frameworks call it is as near as the word itself. */
void meg_nearest_try(meg_nearest *n, const char *word);

/* " (did you mean batch?)", or "" if nothing is near. */
void meg_nearest_hint(const meg_nearest *n, char hint[MEG_HINT]);

/* "unknown device 'cqu' (did you mean cpu?); known: cpu ref"; `what` is "unknown device", `at` the i-th
 * name, NULL past the end. */
meg_status meg_unknown(meg_error *e, const char *what, const char *asked, const char *(*at)(int i));

/* Letters to change, insert, drop or swap to make one word of the other (Damerau, 1964; each letter
 * once). Capitals count as small letters, and - as _. */
int meg_word_distance(const char *a, const char *b);

#endif
