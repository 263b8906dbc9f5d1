/* Normalisation inside a sample, fused: the kernels of groupnorm, instancenorm and layernorm, and
 * what their descriptors share; see setnorm.h. */
#include "ops/norm/setnorm.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <inttypes.h>

#ifndef MEG_F64
int meg_setnorm_weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    static const meg_weight_spec spec[2] = {
        {.suffix = "weight", .kind = MEG_PARAMETER, .start = MEG_ONES},
        {.suffix = "bias", .kind = MEG_PARAMETER, .start = MEG_ZEROS}};
    const meg_setnorm_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    bool elements = a->axes == 1 || a->elements; /* infer, which resolves axes=, comes later */
    for (int i = 0; i < 2; i++) {
        out[i] = spec[i];
        out[i].shape = meg_box_of(1, x->shape.hi[MEG_C], 1, 1, 1);
        out[i].rank = 1;
        out[i].dims[0] = x->shape.hi[MEG_C];
        for (int k = 2; elements && k < x->rank; k++) {
            int axis = MEG_AXES - x->rank + k;
            out[i].dims[out[i].rank++] = out[i].shape.hi[axis] = x->shape.hi[axis];
        }
    }
    return !a->affine ? 0 : a->lone ? 1 : 2;
}

meg_status meg_setnorm_infer(const meg_graph *g, const meg_node *v, meg_error *e, meg_value *out)
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_like(out, &g->value[v->in[0]]);
    return MEG_OK;
}

meg_box meg_setnorm_sets(const meg_node *v, meg_box part)
{
    const meg_setnorm_attr *a = v->attr;
    part.lo[MEG_C] /= a->width;
    part.hi[MEG_C] = (part.hi[MEG_C] + a->width - 1) / a->width;
    for (int k = MEG_D; !a->pixels && k < MEG_AXES; k++)
        part.lo[k] = 0, part.hi[k] = 1;
    return part;
}

meg_box meg_setnorm_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_setnorm_attr *a = v->attr;
    meg_box in = w->out;
    (void)g;
    if (input == 0) return in;
    if (input < v->op->data_inputs) return meg_setnorm_sets(v, in);
    for (int i = 0; i < MEG_AXES; i++)
        if (i != MEG_C && !(i >= MEG_D && a->elements)) in.lo[i] = 0, in.hi[i] = 1;
    return in;
}

double meg_setnorm_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    static const double each[MEG_PASSES] = {
        [MEG_FORWARD] = 8, [MEG_EVAL] = 8, [MEG_REPLAY] = 4, [MEG_BACKWARD] = 14};
    (void)g, (void)v;
    return each[p] * (double)meg_box_size(&w->out);
}

/* Sets stay whole. */
int64_t meg_setnorm_grain(const meg_graph *g, const meg_node *v, int axis)
{
    const meg_setnorm_attr *a = v->attr;
    if (axis == MEG_C) return a->width < g->value[v->in[0]].shape.hi[MEG_C] ? a->width : 0;
    return axis == MEG_N || a->pixels ? 1 : 0;
}

void meg_setnorm_aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                     meg_dtype *type)
{
    (void)g, (void)i;
    *box = meg_setnorm_sets(v, w->out);
    *type = MEG_F32;
}

/* in[]: x[, weight[, bias]] */
int meg_setnorm_expand(meg_graph *g, const meg_node *v, const int in[])
{
    char sets[96], attrs[192];
    const meg_setnorm_attr *a = v->attr;
    const char *name = v->name; /* of the pool, unlike v, which moves as nodes are added */
    snprintf(sets, sizeof sets, "channels=%" PRId64 " pixels=%d", a->width, a->pixels);
    snprintf(attrs, sizeof attrs, "%s elements=%d epsilon=%.17g affine=%d lone=%d relu=%d", sets,
             a->elements, a->epsilon, a->affine, a->lone, a->relu);
    const char *each = meg_pool_text(g->pool, "norm=1 %s", sets);
    int weights = !a->affine ? 0 : a->lone ? 1 : 2;
    int mean = meg_graph_add(g, "mean", meg_pool_text(g->pool, "%s.mean", name), each, 1, in);
    int var = meg_graph_add(g, "var", meg_pool_text(g->pool, "%s.var", name), each, 2,
                            (int[]){in[0], mean});
    return meg_graph_add(g, "norm_sets", name, attrs, 3 + weights,
                         (int[]){in[0], mean, var, weights ? in[1] : 0, weights > 1 ? in[2] : 0});
}
#endif

/* Adds (x - mean)^power of all elements to their set's sum. */
static void sets_sum(const meg_call *c, const meg_box *part, const double mean[], int power,
                     double sum[])
{
    int64_t p[MEG_AXES];
    meg_box lines = meg_lines(part);
    meg_normed k;
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(part, p);
        meg_normed_open(c, &line, &k);
        for (int64_t i = 0; i < k.count; i++) {
            double d = (double)k.x[i] - mean[i * k.set];
            sum[i * k.set] += power == 1 ? d : d * d;
        }
    }
}

static void measure(const meg_call *c, const meg_box *sets)
{
    double mean[MEG_LINE] = {0}, sum[MEG_LINE] = {0}, squares[MEG_LINE] = {0};
    meg_box part = meg_sets_part(c, sets);
    int64_t count = meg_extent(sets, MEG_W);
    double size = (double)(meg_box_size(&part) / count);
    sets_sum(c, &part, mean, 1, sum);
    for (int64_t i = 0; i < count; i++)
        mean[i] = sum[i] / size;
    sets_sum(c, &part, mean, 2, squares);
    for (int64_t i = 0; i < count; i++)
        squares[i] /= size;
    meg_store_line(&c->t[MEG_AUX], sets, mean);
    meg_store_line(&c->t[MEG_AUX + 1], sets, squares);
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_box sets = meg_setnorm_sets(c->node, c->work.out), lines = meg_lines(&sets);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&sets, p);
        measure(c, &line);
    }
    meg_setnorm_apply(c);
}

static void pull(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_box sets = meg_setnorm_sets(c->node, c->work.out), lines = meg_lines(&sets);
    meg_clear_beyond(&c->t[MEG_DX], &c->work.out);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&sets, p), part = meg_sets_part(c, &line);
        meg_set_sums sums = {{0}, {0}};
        int64_t count = meg_extent(&line, MEG_W);
        double size = (double)(meg_box_size(&part) / count);
        meg_sets_reduce(c, &part, &sums);
        for (int64_t i = 0; i < count; i++)
            sums.g[i] /= size, sums.dot[i] /= size;
        meg_sets_pull(c, &part, &sums);
    }
}

static void backward(const meg_call *c)
{
    if (c->t[MEG_DX].data) pull(c);
    meg_setnorm_affine(c);
}

MEG_KERNELS(setnorm) = {
    .run = {[MEG_FORWARD] = forward, [MEG_REPLAY] = meg_setnorm_apply, [MEG_BACKWARD] = backward}};
