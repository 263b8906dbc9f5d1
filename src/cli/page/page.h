/* The page: one HTML file with the pictures of a plan, to be opened in a browser: timelines of the ranks as predicted
 * and as measured, their memory, the alternatives, the critical path. All that it needs is in it.
 */
#ifndef MEG_CLI_PAGE_PAGE_H
#define MEG_CLI_PAGE_PAGE_H

#include "cli/page/recording.h"
#include "train/outlook/foresight.h"

typedef struct meg_page_fact { /* of the summary */
    const char *name, *value;
} meg_page_fact;

enum {
    MEG_PAGE_FACTS = 12
};

typedef struct meg_page {
    const char *title;
    const meg_graph *graph;
    const meg_foresight *foresight;
    const char *const *stages; /* of each actor; NULL: there is one */
    int facts;
    meg_page_fact fact[MEG_PAGE_FACTS];
    double predicted, measured; /* seconds of a step; 0: none was made */
    int64_t batch;
    const meg_recorded *recorded; /* NULL: nothing ran */
} meg_page;

meg_status meg_page_write(const meg_page *p, meg_error *e, const char *path);

/* Draws as JSON, for meg_page_write: the page's data. */
meg_status meg_page_data(const meg_page *p, meg_error *e, FILE *out);

#endif
