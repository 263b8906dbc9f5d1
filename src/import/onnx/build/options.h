/* What a user says of an ONNX file that is read, and who is told of what was lost. */
#ifndef MEG_IMPORT_ONNX_BUILD_OPTIONS_H
#define MEG_IMPORT_ONNX_BUILD_OPTIONS_H

#include "base/option.h"

typedef enum meg_onnx_classes { /* the axis of an output that a loss of classes takes them from */
    MEG_ONNX_CLASSES_AUTO,      /* the last one where it is in front at hand, else axis 1 */
    MEG_ONNX_CLASSES_FIRST,     /* behind the batch */
    MEG_ONNX_CLASSES_LAST
} meg_onnx_classes;

typedef struct meg_onnx_options {
    const char *loss;   /* added to the one output; "none": plain outputs */
    const char *output; /* which one; "": all */
    meg_axes image;     /* extents of a sample where the file leaves them open; {1, {0}}: none */
    const char *freeze, *train; /* patterns over names of weights: graph/freeze.h */
    int classes_at;             /* meg_onnx_classes */
} meg_onnx_options;

/* Is told what a model lost on its way into the file. */
typedef struct meg_onnx_listener {
    void (*warn)(void *context, const char *message);
    void *context;
} meg_onnx_listener;

#endif
