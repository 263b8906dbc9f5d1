/* Kernels in words: see kernel.h. */
#include "cli/report/kernel.h"

#include <inttypes.h>
#include <string.h>

const char *meg_kernel_name(const meg_request *r)
{
    static const char *const name[MEG_CODES] = {"load", "kernel", "copy", "add",
                                                "zero", "update", "free"};
    if (r->code == MEG_KERNEL) return r->node->op->name;
    if (r->code == MEG_UPDATE) return r->optimizer->name;
    return name[r->code];
}

const char *meg_kernel_pass(const meg_request *r)
{
    if (r->code == MEG_UPDATE) return "update";
    return r->code == MEG_KERNEL ? meg_pass_name(r->pass) : "";
}

/* "8x64x56x56", without the axis d where it is 1 */
static void add_box(char *text, size_t size, const char *before, const meg_box *b)
{
    if (meg_box_empty(b)) return;
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, "%s", used ? before : "");
    for (int axis = 0; axis < MEG_AXES && used < size; axis++) {
        if (axis == MEG_D && meg_extent(b, axis) == 1) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, axis ? "x" : "",
                                 meg_extent(b, axis));
    }
}

static bool has_matrix(const meg_request *r) /* a weight with more than one number per channel */
{
    const meg_node *v = r->node;
    return r->code == MEG_KERNEL && v->inputs > 1 &&
           r->graph->value[v->in[1]].kind == MEG_PARAMETER && meg_extent(&r->box[MEG_X + 1], 0) > 1;
}

void meg_kernel_shape(const meg_request *r, char *text, size_t size)
{
    const meg_box *x = &r->box[MEG_X], *y = &r->box[MEG_Y];
    text[0] = '\0';
    add_box(text, size, "", x);
    if (has_matrix(r)) add_box(text, size, " * ", &r->box[MEG_X + 1]);
    if (!meg_box_equal(x, y)) add_box(text, size, " > ", y);
}
