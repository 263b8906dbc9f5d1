/* Copies of weights between formats on the cpu: oneDNN's reorders.
 *
 * The groups of a convolution are the first axis of formats that begin with g; other formats do not
 * see them. Plain is the same with and without.
 */
#include "device/cpu/common/onednn.h"
#include "ops/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reorder {
    meg_onednn *onednn;
    meg_onednn_step step;
} reorder;

static bool descs_of(const meg_request *r, dnnl_memory_desc_t *from, dnnl_memory_desc_t *to)
{
    const meg_op *op = r->node->op;
    bool convolves = op == &meg_op_conv || op == &meg_op_conv_transpose;
    const meg_conv_attr *conv = convolves ? r->node->attr : NULL;
    const meg_box *box = &r->box[MEG_X];
    bool deep = meg_extent(box, MEG_D) > 1;
    int64_t groups[] = {0, conv ? conv->groups : 0};
    if (!meg_box_equal(box, &r->box[MEG_Y])) return false;
    for (int i = 0; i < 2; i++) {
        if (i > 0 && (groups[i] <= 1 || meg_extent(box, MEG_N) % groups[i] != 0)) return false;
        meg_onednn_shape s = meg_onednn_shape_of(box, groups[i], deep);
        if (meg_onednn_desc(&s, r->format[MEG_X], from) &&
            meg_onednn_desc(&s, r->format[MEG_Y], to))
            return true;
    }
    return false;
}

static dnnl_primitive_desc_t find(meg_device *d, const meg_request *r)
{
    const meg_cpu *cpu = meg_device_state(d);
    dnnl_memory_desc_t from, to;
    bool real = r->dtype[MEG_X] == MEG_F32 && r->dtype[MEG_Y] == MEG_F32;
    if (!real || !descs_of(r, &from, &to)) return NULL;
    return meg_onednn_reorder(cpu->onednn, &from, &to);
}

static int64_t bytes_of(const_dnnl_primitive_desc_t pd, int arg)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    return (int64_t)dnnl_memory_desc_get_size(desc);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    int team = meg_onednn_enter(cpu->onednn);
    dnnl_primitive_desc_t pd = find(d, r);
    if (pd) {
        *s = (meg_spec){0};
        s->format[MEG_X] = r->format[MEG_X];
        s->format[MEG_Y] = r->format[MEG_Y];
        s->bytes[MEG_X] = bytes_of(pd, DNNL_ARG_FROM);
        s->bytes[MEG_Y] = bytes_of(pd, DNNL_ARG_TO);
        s->bytes[MEG_SCRATCH] = meg_onednn_scratch(pd);
        snprintf(s->impl, sizeof s->impl, "%s", meg_onednn_impl(pd));
    }
    bool found = pd != NULL;
    dnnl_primitive_desc_destroy(pd);
    meg_onednn_leave(team);
    if (found) s->traffic = (double)(s->bytes[MEG_X] + s->bytes[MEG_Y]);
    return found;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    reorder *o = k->own;
    int team = meg_onednn_enter(o->onednn);
    meg_onednn_step_run(o->onednn, &o->step, at);
    meg_onednn_leave(team);
}

static void free_own(void *own)
{
    reorder *o = own;
    if (!o) return;
    meg_onednn_step_clear(&o->step);
    free(o);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    reorder *o = meg_cpu_own(sizeof *o);
    int team = meg_onednn_enter(cpu->onednn);
    dnnl_primitive_desc_t pd = find(d, r);
    o->onednn = cpu->onednn;
    o->step.place[0] = (meg_onednn_place){DNNL_ARG_FROM, MEG_X, 0};
    o->step.place[1] = (meg_onednn_place){DNNL_ARG_TO, MEG_Y, 0};
    o->step.place[2] = (meg_onednn_place){DNNL_ARG_SCRATCHPAD, MEG_SCRATCH, 0};
    o->step.count = s->bytes[MEG_SCRATCH] > 0 ? 3 : 2;
    bool made = pd && meg_onednn_step_make(o->onednn, pd, &o->step);
    dnnl_primitive_desc_destroy(pd);
    meg_onednn_leave(team);
    if (!made) {
        free_own(o);
        return false;
    }
    out->run = run;
    out->own = o;
    out->free_own = free_own;
    return true;
}

const meg_cpu_op meg_cpu_reorder = {MEG_COPY, NULL, describe, prepare};
