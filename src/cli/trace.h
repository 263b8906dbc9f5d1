/* Traces: what ran when, on all ranks, as the JSON that Perfetto (ui.perfetto.dev) and
 * chrome://tracing show. Written beside the file and renamed when complete.
 *
 *     rank 0    trainer          [ step 1            ][ step 2      ..
 *               device           [conv][relu] [conv]..
 *               waiting                             [wait]             the device has nothing to do
 *               communication 1             [sum gradients ][..
 *               communication 2                [send ..]               as many as go on at a time
 *     rank 1    trainer
 */
#ifndef MEG_CLI_TRACE_H
#define MEG_CLI_TRACE_H

#include "cli/page/recording.h"
#include "cli/session.h"

typedef struct meg_trace meg_trace;

/* Collective: all end with the same status. Begins to write down every kernel and message of the
 * session's trainer, with the first rank's clock. */
meg_status meg_trace_begin(meg_session *s, const char *path, meg_trace **out);

/* A step of the training thread. */
void meg_trace_step(meg_trace *t, const meg_progress *p);

meg_status meg_trace_end(meg_trace *t); /* collective: puts the file in place */
void meg_trace_drop(meg_trace *t);      /* leaves nothing behind; accepts NULL */

/* For whoever takes over the observers, and hands on what they are told. */
meg_listeners meg_trace_listeners(meg_trace *t);

/* Not collective. The same of a step as it was foreseen (train/outlook/foresight.h): one process for each kind of ranks, or for
 * as many as a viewer takes. */
meg_status meg_trace_foretell(meg_session *s, const char *path);

#endif
