/* How many numbers the nodes of a file may compute or go through while it is read, so that time is
 * bounded by the size of the file.
 */
#include "import/onnx/build/build.h"

#include <inttypes.h>

enum {
    SUM_MAX = 1 << 20, /* of all nodes; and PER_WEIGHT more for each number that the file stores: */
    PER_WEIGHT = 32    /* each layer may have its mask, but small files are read in no time */
};

/* How many numbers all nodes of the file may compute. */
static int64_t sum_max(const meg_onnx_build *b)
{
    return SUM_MAX + PER_WEIGHT * b->weights;
}

bool meg_onnx_affords(meg_onnx_build *b, int64_t numbers)
{
    b->computed += numbers;
    return b->computed <= sum_max(b);
}

meg_status meg_onnx_work(meg_onnx_build *b, const meg_onnx_node *n, int64_t numbers)
{
    if (meg_onnx_affords(b, numbers)) return MEG_OK;
    return meg_onnx_refuse(b, n, "the file's nodes compute or read more than %" PRId64 " constants",
                           sum_max(b));
}
