/* What the tests of the device core share. */
#ifndef MEG_TESTS_DEVICE_HELP_H
#define MEG_TESTS_DEVICE_HELP_H

#include "device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum {
    SANITIZED = 1
};
#else
enum {
    SANITIZED = 0
};
#endif

static const meg_moment moment = {.seed = 1, .step = 1};

static inline meg_device *open_device(const char *kind, int threads)
{
    meg_error e;
    meg_device *d = NULL;
    if (meg_device_open(&e, kind, threads, &d) != MEG_OK) fail_msg("%s", e.message);
    return d;
}

static inline meg_prepared *prepare(meg_device *d, const meg_request *r)
{
    meg_error e;
    meg_prepared *k = NULL;
    if (meg_device_prepare(d, &e, r, &k) != MEG_OK) fail_msg("%s", e.message);
    return k;
}

static inline void run(meg_device *d, const meg_request *r, void *const at[MEG_OPERANDS])
{
    meg_prepared *k = prepare(d, r);
    meg_device_launch(d, k, at, &moment);
    meg_device_wait(d);
    meg_prepared_free(k);
}

static inline meg_request instruction(meg_code code, meg_box box, meg_dtype type)
{
    meg_request r = {.code = code};
    for (int i = 0; i < MEG_OPERANDS; i++) {
        r.box[i] = box;
        r.dtype[i] = type;
    }
    return r;
}

#endif
