/* Status and message. A function that can fail returns a meg_status and is given a meg_error; the
 * one that knows what went wrong writes the message, its callers only add themselves to the trail
 * (shown at log level debug).
 */
#ifndef MEG_BASE_STATUS_H
#define MEG_BASE_STATUS_H

#include <megalith.h>

typedef struct meg_error {
    meg_status status;
    char message[1024];
    char trail[512]; /* "infer < graph_add < meg_layer" */
} meg_error;

/* Writes the message and returns the status. */
meg_status meg_fail(meg_error *e, meg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
meg_status meg_trail(meg_error *e, meg_status status, const char *function);
void meg_error_clear(meg_error *e);

/* Passes an error on to the caller. */
#define MEG_TRY(e, call)                                                                           \
    do {                                                                                           \
        meg_status status_ = (call);                                                               \
        if (status_ != MEG_OK) return meg_trail(e, status_, __func__);                             \
    } while (0)

#define MEG_CHECK(e, condition, status, ...)                                                       \
    do {                                                                                           \
        if (!(condition)) return meg_fail(e, status, __VA_ARGS__);                                 \
    } while (0)

#endif
