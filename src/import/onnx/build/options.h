/* What a user says of an ONNX file that is read, and who is told of what was lost. */
#ifndef MEG_IMPORT_ONNX_BUILD_OPTIONS_H
#define MEG_IMPORT_ONNX_BUILD_OPTIONS_H

#include "base/option.h"

typedef struct meg_onnx_options {
    const char *loss;   /* added to the one output; "none": plain outputs */
    const char *output; /* which one; "": all */
    meg_axes image;     /* extents of a sample where the file leaves them open; {1, {0}}: none */
    const char *freeze, *train; /* patterns over names of weights: graph/freeze.h */
} meg_onnx_options;

/* Is told what a model lost on its way into the file. */
typedef struct meg_onnx_listener {
    void (*warn)(void *context, const char *message);
    void *context;
} meg_onnx_listener;

#endif
