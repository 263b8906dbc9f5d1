/* Windows that slide: see window.h. */
#include "ops/common/window.h"
#include "ops/common/shape.h"

#include <inttypes.h>
#include <string.h>

static int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    if (b == 1) return a;
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- from words to windows ---- */

static meg_status check_count(meg_error *e, const meg_node *v, const char *word, int count,
                              int space)
{
    MEG_CHECK(e, count <= 1 || count == space, MEG_EARG,
              "%s: %s lists %d numbers, but the input has %d spatial ax%s: give one for all or one "
              "for each",
              v->name, word, count, space, space == 1 ? "is" : "es");
    return MEG_OK;
}

static int64_t pick(const meg_axes *list, int i, int64_t initial)
{
    if (!list || list->count == 0) return initial;
    return list->at[list->count == 1 ? 0 : i];
}

static meg_window window_at(const meg_window_words *words, int i)
{
    meg_window k = {.taps = pick(words->kernel, i, 1), .dilation = pick(words->dilation, i, 1)};
    k.stride = pick(words->stride, i, words->tile ? k.taps : 1);
    const meg_pads *pad = words->pad;
    if (pad && pad->count > 0) {
        k.before = pad->before[pad->count == 1 ? 0 : i];
        k.after = pad->after[pad->count == 1 ? 0 : i];
    }
    return k;
}

static meg_status misfit(meg_error *e, const meg_node *v, const meg_window *k, int64_t length,
                         int axis)
{
    int64_t padded = length + k->before + k->after;
    char spread[64] = "";
    if (k->dilation > 1) snprintf(spread, sizeof spread, " with dilation %" PRId64, k->dilation);
    return meg_fail(e, MEG_EARG,
                    "%s: kernel %" PRId64 "%s does not fit the padded input of %" PRId64
                    " (axis %c): use kernel <= %" PRId64 " or more padding",
                    v->name, k->taps, spread, padded, "dhw"[axis], (padded - 1) / k->dilation + 1);
}

/* Are there as many numbers as axes? Sets all windows to neutral ones. */
static meg_status check_words(meg_error *e, const meg_node *v, const meg_value *x,
                              const meg_window_words *words, meg_window win[MEG_SPACE])
{
    int space = x->rank - 2;
    const meg_axes *more = words->output_pad;
    MEG_CHECK(e, space >= 1 && space <= MEG_SPACE, MEG_EARG,
              "%s: %s slides over 1 to 3 spatial axes (an input of rank 3 to 5), but its input has "
              "rank %d",
              v->name, v->op->name, x->rank);
    MEG_TRY(e, check_count(e, v, "kernel", words->kernel ? words->kernel->count : 0, space));
    MEG_TRY(e, check_count(e, v, "stride", words->stride ? words->stride->count : 0, space));
    MEG_TRY(e, check_count(e, v, "dilation", words->dilation ? words->dilation->count : 0, space));
    MEG_TRY(e, check_count(e, v, "pad", words->pad ? words->pad->count : 0, space));
    MEG_TRY(e, check_count(e, v, "output_pad", more ? more->count : 0, space));
    for (int a = 0; a < MEG_SPACE; a++)
        win[a] = (meg_window){1, 1, 1, 0, 0};
    return MEG_OK;
}

meg_status meg_windows_resolve(meg_error *e, const meg_node *v, const meg_value *x,
                               const meg_window_words *words, meg_window win[MEG_SPACE])
{
    int space = x->rank - 2;
    MEG_TRY(e, check_words(e, v, x, words, win));
    for (int i = 0; i < space; i++) {
        int a = MEG_SPACE - space + i;
        win[a] = window_at(words, i);
        int64_t length = x->shape.hi[MEG_D + a];
        if (meg_window_extent(&win[a], length, words->ceil) < 1)
            return misfit(e, v, &win[a], length, a);
    }
    return MEG_OK;
}

meg_status meg_windows_transpose(meg_error *e, const meg_node *v, const meg_value *x,
                                 const meg_window_words *words, meg_window win[MEG_SPACE])
{
    int space = x->rank - 2;
    MEG_TRY(e, check_words(e, v, x, words, win));
    for (int i = 0; i < space; i++) {
        int a = MEG_SPACE - space + i;
        meg_window k = window_at(words, i);
        int64_t more = pick(words->output_pad, i, 0), length = x->shape.hi[MEG_D + a];
        MEG_CHECK(e, more < larger(k.stride, k.dilation), MEG_EARG,
                  "%s: output_pad %" PRId64 " (axis %c), but stride is %" PRId64
                  " and dilation %" PRId64 ": use less than the larger of them",
                  v->name, more, "dhw"[a], k.stride, k.dilation);
        int64_t pad = k.before + k.after;
        k.after -= more;
        MEG_CHECK(e, meg_window_spread(&k, length) >= 1, MEG_EARG,
                  "%s: pad takes %" PRId64 " of the %" PRId64 " outputs that kernel %" PRId64
                  " makes of %" PRId64 " pixels (axis %c): use less padding",
                  v->name, pad, meg_window_spread(&k, length) + pad, k.taps, length, "dhw"[a]);
        win[a] = k;
    }
    return MEG_OK;
}

static bool sees(const meg_window *k, int64_t p, int64_t length)
{
    for (int64_t t = 0; t < k->taps; t++) {
        int64_t q = p * k->stride - k->before + t * k->dilation;
        if (q >= 0 && q < length) return true;
    }
    return false;
}

meg_status meg_windows_see(meg_error *e, const meg_node *v, const meg_value *x, const meg_value *y,
                           const meg_window win[MEG_SPACE])
{
    for (int a = 0; a < MEG_SPACE; a++)
        for (int64_t p = 0; p < y->shape.hi[MEG_D + a]; p++)
            MEG_CHECK(e, sees(&win[a], p, x->shape.hi[MEG_D + a]), MEG_EARG,
                      "%s: the window of output %" PRId64 " (axis %c) lies wholly in the padding: "
                      "kernel %" PRId64 ", stride %" PRId64 ", dilation %" PRId64 ", pad %" PRId64
                      ":%" PRId64 " over an input of %" PRId64 "; use less padding",
                      v->name, p, "dhw"[a], win[a].taps, win[a].stride, win[a].dilation,
                      win[a].before, win[a].after, x->shape.hi[MEG_D + a]);
    return MEG_OK;
}

/* ---- extents and reach ---- */

int64_t meg_window_extent(const meg_window *k, int64_t length, bool ceil)
{
    int64_t room = length + k->before + k->after - (k->taps - 1) * k->dilation - 1;
    int64_t extent = floor_div(room + (ceil ? k->stride - 1 : 0), k->stride) + 1;
    bool late = ceil && (extent - 1) * k->stride >= length + k->before;
    return late ? extent - 1 : extent;
}

void meg_windows_output(const meg_value *x, int64_t channels, bool ceil,
                        const meg_window win[MEG_SPACE], meg_value *y)
{
    y->dtype = x->dtype;
    y->rank = x->rank;
    y->shape = meg_box_of(x->shape.hi[MEG_N], channels, 1, 1, 1);
    for (int a = 0; a < MEG_SPACE; a++)
        y->shape.hi[MEG_D + a] = meg_window_extent(&win[a], x->shape.hi[MEG_D + a], ceil);
    for (int i = 0; i < y->rank; i++)
        y->dims[i] = y->shape.hi[i < 2 ? i : MEG_AXES - y->rank + i];
}

meg_box meg_windows_taps(const meg_window win[MEG_SPACE])
{
    return meg_box_of(1, 1, win[0].taps, win[1].taps, win[2].taps);
}

void meg_windows_reach(const meg_window win[MEG_SPACE], const meg_box *out, const meg_box *taps,
                       meg_box *in)
{
    meg_box p = *out, t = *taps; /* `in` may be one of them */
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *k = &win[i];
        int a = MEG_D + i;
        in->lo[a] = p.lo[a] * k->stride - k->before + t.lo[a] * k->dilation;
        in->hi[a] = (p.hi[a] - 1) * k->stride - k->before + (t.hi[a] - 1) * k->dilation + 1;
    }
}

int64_t meg_window_spread(const meg_window *k, int64_t length)
{
    return (length - 1) * k->stride - k->before - k->after + (k->taps - 1) * k->dilation + 1;
}

void meg_windows_draw(const meg_window win[MEG_SPACE], const meg_box *out, const meg_box *taps,
                      meg_box *in)
{
    meg_box q = *out, t = *taps; /* `in` may be one of them */
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *k = &win[i];
        int a = MEG_D + i;
        int64_t near = t.lo[a] * k->dilation - k->before;
        int64_t far = (t.hi[a] - 1) * k->dilation - k->before;
        in->lo[a] = -floor_div(far - q.lo[a], k->stride);
        in->hi[a] = floor_div(q.hi[a] - 1 - near, k->stride) + 1;
    }
}

/* ---- sliding ---- */

/* Sets hit and q for the tap s->t; false if no output reads a pixel through it. */
static bool touch(meg_slide *s)
{
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *k = &s->win[i];
        int a = MEG_D + i;
        int64_t shift = s->t[a] * k->dilation - k->before;
        int64_t first = -floor_div(shift - s->in.lo[a], k->stride);
        int64_t last = floor_div(s->in.hi[a] - 1 - shift, k->stride);
        s->hit.lo[a] = larger(s->out.lo[a], first);
        s->hit.hi[a] = smaller(s->out.hi[a], last + 1);
        if (s->hit.lo[a] >= s->hit.hi[a]) return false;
        s->q[a] = s->hit.lo[a] * k->stride + shift;
    }
    return true;
}

bool meg_slide_first(meg_slide *s)
{
    s->hit = s->out;
    memcpy(s->q, s->in.lo, sizeof s->q);
    for (int a = 0; a < MEG_D; a++) /* the walk below is over d, h, w alone */
        s->taps.hi[a] = s->taps.lo[a] + 1;
    if (!meg_box_first(&s->taps, s->t)) return false;
    return touch(s) || meg_slide_next(s);
}

bool meg_slide_next(meg_slide *s)
{
    while (meg_box_next(&s->taps, s->t))
        if (touch(s)) return true;
    return false;
}

/* ---- what whole operators share ---- */

meg_status meg_pool_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_pool_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = {&a->kernel, &a->stride, &a->dilation, &a->pad, true, a->ceil, NULL};
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_windows_resolve(e, v, x, &words, a->win));
    meg_windows_output(x, x->shape.hi[MEG_C], a->ceil, a->win, &out[0]);
    return meg_windows_see(e, v, x, &out[0], a->win);
}

meg_box meg_pool_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_pool_attr *a = v->attr;
    meg_box in = w->out, taps = meg_windows_taps(a->win);
    (void)g, (void)input;
    meg_windows_reach(a->win, &w->out, &taps, &in);
    return in;
}

double meg_pool_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const meg_pool_attr *a = v->attr;
    meg_box taps = meg_windows_taps(a->win);
    (void)g, (void)p; /* each pass compares or adds every tap of every output once */
    return (double)meg_box_size(&w->out) * (double)meg_box_size(&taps);
}

meg_status meg_want_weights(const meg_graph *g, const meg_node *v, meg_error *e)
{
    meg_weight_spec spec[MEG_INPUTS];
    int data = v->op->data_inputs, count = v->op->weights(g, v, spec);
    MEG_CHECK(e, v->inputs == data + count, MEG_EARG,
              "%s: %s takes %d input%s and %d weight%s here, but got %d values", v->name,
              v->op->name, data, data == 1 ? "" : "s", count, count == 1 ? "" : "s", v->inputs);
    for (int i = 0; i < count; i++)
        MEG_TRY(e, meg_want_shape(g, v, e, data + i, spec[i].shape));
    return MEG_OK;
}

bool meg_first_part(const meg_work *w)
{
    if (meg_box_empty(&w->sum)) return false;
    for (int a = 0; a < MEG_AXES; a++)
        if (w->sum.lo[a] != 0) return false;
    return true;
}
