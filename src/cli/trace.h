/* Traces: what ran when, as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing show.
 * Written beside the file and renamed when complete. */
#ifndef MEG_CLI_TRACE_H
#define MEG_CLI_TRACE_H

#include "device/device.h"

typedef struct meg_trace meg_trace;

/* Begins to write down every kernel of the device. */
meg_status meg_trace_begin(meg_error *e, const char *path, meg_device *d, meg_trace **out);

/* A step of the training thread that ends now. */
void meg_trace_step(meg_trace *t, int64_t step, double seconds);

meg_status meg_trace_end(meg_trace *t, meg_error *e); /* puts the file in place */
void meg_trace_drop(meg_trace *t);                    /* leaves nothing behind; accepts NULL */

#endif
