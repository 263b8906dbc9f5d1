/* Windows that slide: what convolution and pooling share.
 *
 * Along one axis, tap t of output p reads pixel q = p*stride - before + t*dilation. All that these
 * operators ask is asked of this relation: which interval of q do an interval of p and one of t
 * reach (need)? Which p of an interval meet, through tap t, a q of another interval? The latter
 * serves forward (a line of p against the shape of x: the rest is padding), backward (a line of q
 * against the work's outputs) and the weight gradient (all against all), so no kernel tests for
 * padding or divides by the stride inside its loops.
 */
#ifndef MEG_OPS_COMMON_WINDOW_H
#define MEG_OPS_COMMON_WINDOW_H

#include "graph/op.h"
#include "ops/attrs.h"

typedef struct meg_window_words { /* as the user wrote them; an empty list takes its default */
    const meg_axes *kernel, *stride, *dilation; /* defaults: 1; the kernel if `tile`, else 1; 1 */
    const meg_pads *pad;                        /* default: 0 */
    bool tile, ceil;
    const meg_axes *output_pad; /* of transposed windows; default: 0 */
} meg_window_words;

/* One window per spatial axis of x, which must have some; neutral ones for axes it has not. Lists
 * name one number for all axes or one for each; a window must fit the padded input. */
meg_status meg_windows_resolve(meg_error *e, const meg_node *v, const meg_value *x,
                               const meg_window_words *words, meg_window win[MEG_SPACE]);

/* Refuses windows that see nothing but padding: they have no maximum and no mean. */
meg_status meg_windows_see(meg_error *e, const meg_node *v, const meg_value *x, const meg_value *y,
                           const meg_window win[MEG_SPACE]);

/* Rank, dims, shape and type of what sliding over x makes; n is x's. With `ceil` a last window may
 * overhang, but must start inside the input or the padding before it, as PyTorch has it. */
void meg_windows_output(const meg_value *x, int64_t channels, bool ceil,
                        const meg_window win[MEG_SPACE], meg_value *y);

/* Extent of the output along one axis; below 1: the window does not fit. */
int64_t meg_window_extent(const meg_window *k, int64_t length, bool ceil);

/* All taps: (1, 1, d, h, w). */
meg_box meg_windows_taps(const meg_window win[MEG_SPACE]);

/* Sets d, h, w of `in` to what the outputs reach through the taps; it may stick out of x. */
void meg_windows_reach(const meg_window win[MEG_SPACE], const meg_box *out, const meg_box *taps,
                       meg_box *in);

/* A slide visits, in row-major order, the taps through which outputs of `out` read pixels of `in`:
 *
 *     for (bool on = meg_slide_first(&s); on; on = meg_slide_next(&s))
 *
 * Set `win`, `taps`, `out`, `in` before; of the boxes only d, h, w matter. */
typedef struct meg_slide {
    const meg_window *win; /* [MEG_SPACE] */
    meg_box taps, out, in;
    int64_t t[MEG_AXES]; /* the tap; n, c: those of taps.lo */
    meg_box hit;         /* the outputs; n, c: those of `out` */
    int64_t q[MEG_AXES]; /* the pixel that output hit.lo reads; n, c: those of in.lo */
} meg_slide;

bool meg_slide_first(meg_slide *s);
bool meg_slide_next(meg_slide *s);

/* Transposed windows: output q of tap t reads pixel p where q = p*stride - before + t*dilation, so
 * q is the `in` of a slide and p its `out`. Output padding, which lengthens the output at its end,
 * is taken off `after`. */
meg_status meg_windows_transpose(meg_error *e, const meg_node *v, const meg_value *x,
                                 const meg_window_words *words, meg_window win[MEG_SPACE]);
int64_t meg_window_spread(const meg_window *k, int64_t length); /* extent of the output */

/* Sets d, h, w of `in` to what the outputs of transposed windows reach through the taps; it may
 * stick out of x, and be empty: some outputs get nothing. */
void meg_windows_draw(const meg_window win[MEG_SPACE], const meg_box *out, const meg_box *taps,
                      meg_box *in);

/* Pooling: infer, need and flops of operators with meg_pool_attr. */
meg_status meg_pool_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS]);
meg_box meg_pool_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_pool_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

/* Weights may be given instead of made with the node (tied): they must be what it would make. */
meg_status meg_want_weights(const meg_graph *g, const meg_node *v, meg_error *e);

/* Where a term outside the sum (bias) belongs: to the part that begins the sum. */
bool meg_first_part(const meg_work *w);

#endif
