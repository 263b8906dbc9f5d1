/* How far a thing is, on a terminal: one line on stderr that is redrawn, and goes in the end. Elsewhere
 * nothing is shown. */
#ifndef MEG_CLI_REPORT_BAR_H
#define MEG_CLI_REPORT_BAR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_bar {
    const char *what; /* "evaluating" */
    bool live, drawn;
    double begin, last; /* when it began, was drawn */
} meg_bar;

void meg_bar_begin(meg_bar *b, const char *what, bool speaks); /* speaks no: shows nothing */
void meg_bar_show(void *bar, int64_t done, int64_t total);     /* as those who count call it */
void meg_bar_clear(meg_bar *b); /* before other lines, and at the end */

#endif
