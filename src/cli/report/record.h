/* One JSON object a line: what --json prints. */
#ifndef MEG_CLI_REPORT_RECORD_H
#define MEG_CLI_REPORT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct meg_record {
    bool more; /* not the first key */
} meg_record;

void meg_record_text(meg_record *r, const char *key, const char *value);
void meg_record_int(meg_record *r, const char *key, int64_t value);
void meg_record_real(meg_record *r, const char *key, double value); /* not finite: null */
void meg_record_reals(meg_record *r, const char *key, const double *value, size_t count);
void meg_record_true(meg_record *r, const char *key);
void meg_record_end(meg_record *r); /* ends the line and sends it */

#endif
