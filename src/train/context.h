/* The nouns of the public interface from the inside. */
#ifndef MEG_TRAIN_CONTEXT_H
#define MEG_TRAIN_CONTEXT_H

#include "base/log.h"
#include "data/data.h"
#include "device/device.h"
#include "plan/plan.h"

typedef struct meg_context_options {
    char device[MEG_TEXT];
    int64_t threads; /* 0: as many as the process may use */
    int64_t seed;
    int log;
} meg_context_options;

extern const meg_param meg_context_params[];

struct meg_context {
    meg_context_options options;
    meg_error error;
    meg_logger log;
    meg_device *device;
};

struct meg_data {
    meg_context *ctx;
    meg_dataset set;
};

meg_profile meg_context_profile(meg_context *ctx); /* of its device */

#endif
