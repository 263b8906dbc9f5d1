/* New extents of the same numbers, as Reshape, Flatten, Squeeze and Unsqueeze give them: what 0 and -1
 * stand for, which axes go, which come.
 */
#include "import/onnx/fold/fold.h"

#include <string.h>

bool meg_onnx_resolve(const int64_t from[], int rank, bool zeros, meg_onnx_list *to)
{
    int64_t size = 1, known = 1;
    int open = -1;
    for (int i = 0; i < rank; i++)
        size *= from[i];
    for (int i = 0; i < to->count; i++) {
        if (to->at[i] == 0 && zeros && i < rank) to->at[i] = from[i];
        if (to->at[i] == -1 && open < 0) {
            open = i;
            continue;
        }
        if (to->at[i] < 1 || __builtin_mul_overflow(known, to->at[i], &known)) return false;
    }
    if (open >= 0) to->at[open] = size / known, known *= to->at[open];
    return known == size;
}

static int new_rank(const meg_onnx_node *n, const meg_onnx_tensor *t, const meg_onnx_list *axes,
                    int64_t dims[MEG_ONNX_RANK])
{
    unsigned marked = 0;
    bool more = meg_bytes_is(n->op, "Unsqueeze");
    int count = t->rank + (more ? axes->count : 0), rank = 0, from = 0;
    for (int i = 0; count <= MEG_ONNX_RANK && i < axes->count; i++) {
        int axis = meg_onnx_axis(axes->at[i], count);
        bool fits = axis >= 0 && !(marked >> axis & 1) && (more || t->dims[axis] == 1);
        if (!fits) return -1;
        marked |= 1u << axis;
    }
    if (count > MEG_ONNX_RANK) return -1;
    for (int i = 0; i < count; i++) {
        bool mark = axes->count < 0 ? t->dims[i] == 1 : marked >> i & 1;
        if (more || !mark) dims[rank++] = more && mark ? 1 : t->dims[from];
        from += !more || !mark;
    }
    return rank;
}

meg_status meg_onnx_new_dims(const meg_onnx_build *b, const meg_onnx_node *n,
                             const meg_onnx_tensor *t, int64_t dims[MEG_ONNX_RANK], int *rank)
{
    meg_onnx_list list;
    bool reshape = meg_bytes_is(n->op, "Reshape");
    MEG_TRY(b->error, meg_onnx_list_of(b, n, reshape ? NULL : "axes", 1, &list));
    if (meg_bytes_is(n->op, "Flatten")) {
        int64_t axis = meg_onnx_int(n, "axis", 1);
        if (axis < 0) axis += t->rank;
        list = (meg_onnx_list){2, {1, 1}};
        for (int i = 0; i < t->rank; i++)
            list.at[i >= axis] *= t->dims[i];
        reshape = true;
    }
    if (reshape &&
        (list.count < 0 ||
         !meg_onnx_resolve(t->dims, t->rank, meg_onnx_int(n, "allowzero", 0) == 0, &list)))
        return meg_onnx_refuse(b, n, "the new shape does not have as many elements as the input");
    *rank = reshape ? list.count : new_rank(n, t, &list, dims);
    if (*rank < 0) return meg_onnx_refuse(b, n, "axes that do not exist, or too many");
    if (reshape) memcpy(dims, list.at, sizeof list.at);
    return MEG_OK;
}
