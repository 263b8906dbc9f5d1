/* Spans: see spans.h. */
#include "ops/common/spans.h"
#include "ops/common/shape.h"

#include <math.h>

static int64_t within(double at, int64_t length)
{
    return at < 0 ? 0 : at > (double)(length - 1) ? length - 1 : (int64_t)at;
}

/* One division, so that a position which is a whole number comes out as one. */
static double position(const meg_spans *s, int64_t p)
{
    if (s->half) return ((double)p + 0.5) * s->num / s->den - 0.5;
    return (double)p * s->num / s->den;
}

static meg_span nearest(const meg_spans *s, int64_t p)
{
    double at = position(s, p);
    double rounded[] = {floor(at), ceil(at), ceil(at - 0.5), floor(at + 0.5)};
    int64_t q = within(rounded[s->rounding], s->in);
    return (meg_span){q, q + 1, 1, 0, false, {0}};
}

/* Positions beyond the middle of the first or last pixel take that pixel. */
static meg_span linear(const meg_spans *s, int64_t p)
{
    double at = fmin(fmax(position(s, p), 0), (double)(s->in - 1));
    int64_t lo = within(floor(at), s->in);
    double rest = at - (double)lo;
    return (meg_span){lo, rest > 0 ? lo + 2 : lo + 1, 1 - rest, rest, false, {0}};
}

/* Bins of nearly equal size that cover the input; neighbours may share a pixel. */
static meg_span bin(const meg_spans *s, int64_t p)
{
    int64_t lo = p * s->in / s->out, hi = ((p + 1) * s->in + s->out - 1) / s->out;
    return (meg_span){lo, hi, 1 / (double)(hi - lo), 1 / (double)(hi - lo), false, {0}};
}

/* Keys' weight of a pixel at this distance, his a = -3/4, as PyTorch has it. */
static double keys(double x)
{
    static const double a = -0.75;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Four pixels around the position; what lies beyond the edge takes the pixel there. */
static meg_span cubic(const meg_spans *s, int64_t p)
{
    double at = position(s, p), first = floor(at) - 1;
    meg_span span = {.lo = within(first, s->in), .hi = within(first + 3, s->in) + 1, .cubic = true};
    for (int k = 0; k < 4; k++)
        span.each[within(first + k, s->in) - span.lo] += keys(fabs(at - (first + k)));
    return span;
}

meg_span meg_span_of(const meg_spans *s, int64_t p)
{
    static meg_span (*const kinds[])(const meg_spans *, int64_t) = {nearest, linear, cubic, bin};
    return kinds[s->kind](s, p);
}

int64_t meg_span_reaching(const meg_spans *s, int64_t q, int64_t lo, int64_t hi)
{
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (meg_span_of(s, middle).hi > q) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

int64_t meg_span_beyond(const meg_spans *s, int64_t q, int64_t lo, int64_t hi)
{
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (meg_span_of(s, middle).lo > q) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

meg_box meg_spans_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_resize_attr *a = v->attr;
    meg_box in = w->out;
    (void)g, (void)input;
    for (int i = 0; i < MEG_SPACE; i++) {
        in.lo[MEG_D + i] = meg_span_of(&a->spans[i], w->out.lo[MEG_D + i]).lo;
        in.hi[MEG_D + i] = meg_span_of(&a->spans[i], w->out.hi[MEG_D + i] - 1).hi;
    }
    return in;
}

/* Each pass multiplies and adds every pixel of every span once; that of the first output is as
 * long as the others, nearly. */
double meg_spans_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const meg_resize_attr *a = v->attr;
    double pixels = 1;
    (void)g, (void)p;
    for (int i = 0; i < MEG_SPACE; i++) {
        meg_span s = meg_span_of(&a->spans[i], a->spans[i].out / 2);
        pixels *= (double)(s.hi - s.lo);
    }
    return 2 * pixels * (double)meg_box_size(&w->out);
}

void meg_spans_output(const meg_value *x, const meg_spans s[MEG_SPACE], meg_value *y)
{
    meg_shape_like(y, x);
    y->dtype = x->dtype;
    for (int i = 2; i < x->rank; i++) {
        int axis = MEG_AXES - x->rank + i;
        y->dims[i] = y->shape.hi[axis] = s[axis - MEG_D].out;
    }
}

meg_status meg_spans_open(meg_error *e, const meg_node *v, const meg_value *x)
{
    meg_resize_attr *a = v->attr;
    int space = x->rank - 2, count = a->size.count;
    MEG_CHECK(e, space >= 1 && space <= MEG_SPACE, MEG_EARG,
              "%s: %s works on 1 to 3 spatial axes (an input of rank 3 to 5), but its input has "
              "rank %d",
              v->name, v->op->name, x->rank);
    MEG_CHECK(e, count <= 1 || count == space, MEG_EARG,
              "%s: size lists %d numbers, but the input has %d spatial ax%s: give one for all or "
              "one for each",
              v->name, count, space, space == 1 ? "is" : "es");
    for (int i = 0; i < MEG_SPACE; i++) {
        int64_t in = x->shape.hi[MEG_D + i];
        int at = count == 1 ? 0 : i - (MEG_SPACE - space);
        bool ours = i >= MEG_SPACE - space && count > 0;
        a->spans[i] = (meg_spans){.in = in, .out = ours ? a->size.at[at] : in, .num = 1, .den = 1};
    }
    return MEG_OK;
}
