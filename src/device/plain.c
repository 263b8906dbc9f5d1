/* The plain-C path: runs any request by the operators' own kernels, which define what is right.
 * All kinds of devices share it.
 *
 *     KERNEL, COPY        formats are plain; COPY fills where the boxes meet
 *     ADD, ZERO, UPDATE   element by element, so any format will do as long as its bytes are known
 *
 * In place: operators that say so (graph/op.h) may overwrite X0 by Y, and DY by DX. Neither box may
 * have a halo around the work: the kernels would clear it first.
 */
#include "device/device.h"

#include <string.h>

/* ---- describing ---- */

/* Of an addition: those that equal the output's; what is spread has a sum of it. */
static meg_mask gradients(const meg_request *r)
{
    meg_mask mask = 0;
    const meg_value *y = &r->graph->value[r->node->out[0]];
    for (int i = 0; i < r->node->inputs; i++)
        if (meg_box_equal(&r->graph->value[r->node->in[i]].shape, &y->shape))
            mask |= MEG_BIT(MEG_DX + i);
    return mask;
}

/* Whether operands a and b both cover just the work. */
static bool no_halo(const meg_request *r, int a, int b)
{
    return meg_box_equal(&r->box[a], &r->work.out) && meg_box_equal(&r->box[b], &r->work.out);
}

/* x + x + x must not find x overwritten by the first sum. */
static bool reads_once(const meg_node *v)
{
    for (int i = 1; i < v->inputs; i++)
        if (v->in[i] == v->in[0]) return false;
    return true;
}

static void describe_kernel(const meg_request *r, meg_spec *s)
{
    const meg_op *op = r->node->op;
    bool add = op->adds;
    bool forward = r->pass == MEG_FORWARD || r->pass == MEG_EVAL || r->pass == MEG_REPLAY;
    if (add && r->pass == MEG_BACKWARD) s->shared = gradients(r);
    if (!op->overwrites) return;
    if (forward && no_halo(r, MEG_X, MEG_Y) && reads_once(r->node)) s->in_place = MEG_BIT(MEG_Y);
    if (r->pass == MEG_BACKWARD && no_halo(r, MEG_DY, MEG_DX))
        s->in_place = add ? gradients(r) : MEG_BIT(MEG_DX);
}

/* The format of what is changed decides; the others must lie as it does. */
static void describe_elements(const meg_request *r, meg_spec *s)
{
    bool made = r->code == MEG_ZERO;
    meg_format format = r->format[made ? MEG_Y : MEG_X];
    s->format[MEG_X] = s->format[MEG_X + 1] = s->format[MEG_Y] = format;
    for (int i = 0; i < MEG_OPTIMIZER_STATES; i++)
        s->format[MEG_AUX + i] = format;
    if (r->code == MEG_ADD) s->in_place = MEG_BIT(MEG_Y);
}

static void describe_copy(const meg_request *r, meg_spec *s)
{
    s->format[MEG_X] = r->format[MEG_X];
    s->format[MEG_Y] = r->format[MEG_Y];
}

void meg_plain_describe(const meg_request *r, meg_spec *s)
{
    static void (*const describe[MEG_CODES])(const meg_request *, meg_spec *) = {
        [MEG_KERNEL] = describe_kernel,   [MEG_COPY] = describe_copy,
        [MEG_ADD] = describe_elements,    [MEG_ZERO] = describe_elements,
        [MEG_UPDATE] = describe_elements,
    };
    *s = (meg_spec){.impl = "plain"};
    if (describe[r->code]) describe[r->code](r, s);
    s->flops = meg_request_flops(r);
    s->traffic = meg_request_traffic(r, s, 0);
}

/* ---- running ---- */

/* Gradients that share a slot are written once: the kernel skips what it is not given. */
static void drop_repeated(const meg_prepared *k, meg_call *c)
{
    for (int i = 1; i < MEG_INPUTS; i++)
        for (int j = 0; j < i; j++)
            if ((k->spec.shared & MEG_BIT(MEG_DX + i)) &&
                c->t[MEG_DX + i].data == c->t[MEG_DX + j].data)
                c->t[MEG_DX + i].data = NULL;
}

static void run_kernel(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m,
                       meg_dtype real)
{
    const meg_request *r = &k->request;
    meg_call c = {.graph = r->graph, .node = r->node, .work = r->work, .moment = *m};
    for (int i = 0; i < MEG_OPERANDS; i++)
        c.t[i] = (meg_array){r->box[i], at[i]};
    if (k->spec.shared) drop_repeated(k, &c);
    meg_op_kernel(r->node->op, r->pass, real)(&c);
}

static void run_f32(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    run_kernel(k, at, m, MEG_F32);
}

static void run_f64(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    run_kernel(k, at, m, MEG_F64);
}

/* Elements of an operand as it lies in memory, padding of blocks included. */
static int64_t elements(const meg_prepared *k, int operand)
{
    return meg_operand_bytes(&k->request, &k->spec, operand) /
           meg_dtype_bytes(k->request.dtype[operand]);
}

static void copy_bytes(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    memcpy(at[MEG_Y], at[MEG_X], (size_t)meg_operand_bytes(&k->request, &k->spec, MEG_Y));
}

static void copy_rows(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const meg_box *from = &k->request.box[MEG_X], *to = &k->request.box[MEG_Y];
    int64_t p[MEG_AXES], size = meg_dtype_bytes(k->request.dtype[MEG_Y]);
    meg_box part = meg_box_meet(*from, *to), rows = part;
    if (meg_box_empty(&part)) return;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p))
        memcpy((char *)at[MEG_Y] + meg_box_at(to, p) * size,
               (char *)at[MEG_X] + meg_box_at(from, p) * size,
               (size_t)(meg_extent(&part, MEG_W) * size));
}

/* Y = X0, and X1 added where it is. */
static void add_rows(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const meg_box *from = &k->request.box[MEG_X + 1], *to = &k->request.box[MEG_Y];
    meg_box part = meg_box_meet(*from, *to), rows = part;
    int64_t p[MEG_AXES], count = meg_extent(&part, MEG_W);
    bool wide = k->request.dtype[MEG_Y] == MEG_F64;
    if (at[MEG_Y] != at[MEG_X]) copy_bytes(k, at, m);
    if (meg_box_empty(&part)) return;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        int64_t y = meg_box_at(to, p), x = meg_box_at(from, p);
        for (int64_t i = 0; i < count; i++)
            if (wide) ((double *)at[MEG_Y])[y + i] += ((const double *)at[MEG_X + 1])[x + i];
            else ((float *)at[MEG_Y])[y + i] += ((const float *)at[MEG_X + 1])[x + i];
    }
}

static void add_f32(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    float *y = at[MEG_Y]; /* may be a: hence no restrict */
    const float *a = at[MEG_X], *b = at[MEG_X + 1];
    for (int64_t i = 0, count = elements(k, MEG_Y); i < count; i++)
        y[i] = a[i] + b[i];
}

static void add_f64(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    double *y = at[MEG_Y];
    const double *a = at[MEG_X], *b = at[MEG_X + 1];
    for (int64_t i = 0, count = elements(k, MEG_Y); i < count; i++)
        y[i] = a[i] + b[i];
}

static void add_i32(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    int32_t *y = at[MEG_Y];
    const int32_t *a = at[MEG_X], *b = at[MEG_X + 1];
    for (int64_t i = 0, count = elements(k, MEG_Y); i < count; i++)
        y[i] = a[i] + b[i];
}

static void zero(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    memset(at[MEG_Y], 0, (size_t)meg_operand_bytes(&k->request, &k->spec, MEG_Y));
}

static void update(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const meg_request *r = &k->request;
    meg_update u = {
        .count = elements(k, MEG_X),
        .weight = at[MEG_X],
        .gradient = at[MEG_X + 1],
        .scalars = at[MEG_X + 2],
        .settings = r->settings,
        .decay = true,
    };
    for (int i = 0; i < MEG_OPTIMIZER_STATES; i++)
        u.state[i] = at[MEG_AUX + i];
    (r->dtype[MEG_X] == MEG_F64 ? r->optimizer->f64 : r->optimizer->f32)(&u);
}

/* ---- preparing: chooses `run`, or says why there is none ---- */

static meg_status prepare_kernel(meg_device *d, meg_error *e, const meg_request *r,
                                 meg_prepared *out)
{
    const meg_op *op = r->node->op;
    meg_mask used = meg_request_reads(r) | meg_request_writes(r);
    meg_dtype real = meg_device_real(d);
    MEG_CHECK(e, meg_op_kernel(op, r->pass, real), MEG_EUNSUPPORTED, "%s: %s has no %s pass",
              r->node->name, op->name, meg_pass_name(r->pass));
    for (int i = 0; i < MEG_OPERANDS; i++)
        MEG_CHECK(e, !(used & MEG_BIT(i)) || out->spec.format[i] == MEG_FORMAT_PLAIN,
                  MEG_EUNSUPPORTED,
                  "%s: device %s described %s %s with operand %d as %s, but did not prepare it; "
                  "plain C takes plain operands only",
                  r->node->name, meg_device_kind_of(d)->name, op->name, meg_pass_name(r->pass), i,
                  meg_format_name(out->spec.format[i]));
    out->run = real == MEG_F64 ? run_f64 : run_f32;
    return MEG_OK;
}

static meg_status prepare_copy(meg_device *d, meg_error *e, const meg_request *r, meg_prepared *out)
{
    (void)d;
    const meg_format from = out->spec.format[MEG_X], to = out->spec.format[MEG_Y];
    bool whole = meg_box_equal(&r->box[MEG_X], &r->box[MEG_Y]);
    MEG_CHECK(e, r->dtype[MEG_X] == r->dtype[MEG_Y], MEG_EUNSUPPORTED,
              "copy from %s to %s: both sides must have the same type",
              meg_dtype_name(r->dtype[MEG_X]), meg_dtype_name(r->dtype[MEG_Y]));
    MEG_CHECK(e, from == to && (whole || from == MEG_FORMAT_PLAIN), MEG_EUNSUPPORTED,
              "copy from format %s to %s: plain C copies between equal boxes of one format, or "
              "parts of plain ones",
              meg_format_name(from), meg_format_name(to));
    out->run = whole ? copy_bytes : copy_rows;
    return MEG_OK;
}

static meg_status known_bytes(meg_error *e, const meg_request *r, const meg_spec *s, int operand)
{
    meg_format format = s->format[operand];
    MEG_CHECK(e, meg_format_block(format) || s->bytes[operand] || r->bytes[operand],
              MEG_EUNSUPPORTED,
              "%s of a weight in format %s, whose bytes the device did not say; ask for it as a "
              "plain box of as many elements",
              meg_code_name(r->code), meg_format_name(format));
    return MEG_OK;
}

static meg_status prepare_add(meg_device *d, meg_error *e, const meg_request *r, meg_prepared *out)
{
    static void (*const add[])(const meg_prepared *, void *const[], const meg_moment *) = {
        [MEG_F32] = add_f32, [MEG_F64] = add_f64, [MEG_I32] = add_i32, [MEG_BOOL] = NULL};
    (void)d;
    MEG_TRY(e, known_bytes(e, r, &out->spec, MEG_Y));
    MEG_CHECK(e, add[r->dtype[MEG_Y]], MEG_EUNSUPPORTED, "add of %s: use f32, f64 or i32",
              meg_dtype_name(r->dtype[MEG_Y]));
    out->run = add[r->dtype[MEG_Y]];
    if (meg_box_equal(&r->box[MEG_X + 1], &r->box[MEG_Y])) return MEG_OK;
    bool plain = out->spec.format[MEG_Y] == MEG_FORMAT_PLAIN;
    MEG_CHECK(e, plain && r->dtype[MEG_Y] != MEG_I32, MEG_EUNSUPPORTED,
              "add of a part: plain formats of f32 and f64 only");
    out->run = add_rows;
    return MEG_OK;
}

static meg_status prepare_zero(meg_device *d, meg_error *e, const meg_request *r, meg_prepared *out)
{
    (void)d;
    MEG_TRY(e, known_bytes(e, r, &out->spec, MEG_Y));
    out->run = zero;
    return MEG_OK;
}

static meg_status prepare_update(meg_device *d, meg_error *e, const meg_request *r,
                                 meg_prepared *out)
{
    (void)d;
    MEG_TRY(e, known_bytes(e, r, &out->spec, MEG_X));
    out->run = update;
    return MEG_OK;
}

meg_status meg_plain_prepare(meg_device *d, meg_error *e, const meg_request *r, meg_prepared *out)
{
    static meg_status (*const prepare[MEG_CODES])(meg_device *, meg_error *, const meg_request *,
                                                  meg_prepared *) = {
        [MEG_KERNEL] = prepare_kernel, [MEG_COPY] = prepare_copy,     [MEG_ADD] = prepare_add,
        [MEG_ZERO] = prepare_zero,     [MEG_UPDATE] = prepare_update,
    };
    MEG_CHECK(e, prepare[r->code], MEG_EARG, "%s is the engine's business, not a device's",
              meg_code_name(r->code));
    MEG_TRY(e, prepare[r->code](d, e, r, out));
    strcpy(out->spec.impl, "plain");
    return MEG_OK;
}
