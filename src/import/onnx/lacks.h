/* What a file wants that is not here: see lacks.c. */
#ifndef MEG_IMPORT_ONNX_LACKS_H
#define MEG_IMPORT_ONNX_LACKS_H

#include "import/onnx/build/build.h"

/* Refuses the file where operators are not supported; names all of them. */
meg_status meg_onnx_check_operators(meg_onnx_build *b);

#endif
