/* Normalisations of ONNX, and dropout. Scales and offsets must be constants of the file; they become
 * parameters, and running statistics become states.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <math.h>

/* ONNX and Keras average the population's variance, PyTorch the unbiased one. */
static const char *variance_of(const meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_bytes note = meg_onnx_note(n, "megalith.running_var");
    if (meg_bytes_is(note, "unbiased")) return "unbiased";
    if (meg_bytes_is(note, "population")) return "population";
    return meg_bytes_is(b->file->producer, "pytorch") ? "unbiased" : "population";
}

/* A scale that another normalisation has, too. Where the file says what is whose, merged ones are parted
 * again (build/torch.c), and this one is tied. */
static bool is_shared(const meg_onnx_symbol *s)
{
    bool said = s->kind == MEG_ONNX_PARAMETER && !s->guessed;
    return s->parameter >= 0 && meg_onnx_is_weight(s) && !said;
}

static meg_status read_batchnorm(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "batchnorm", .inputs = 1, .weights = 4};
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    for (int i = 0; i < 4; i++)
        MEG_TRY(b->error, meg_onnx_want_weight(b, n, 1 + i, &l.weight[i].symbol));
    b->merged += is_shared(l.weight[0].symbol);
    meg_onnx_attr(&l, "epsilon=%.9g momentum=%.9g variance=%s", meg_onnx_real(n, "epsilon", 1e-5),
                  1 - meg_onnx_real(n, "momentum", 0.9), variance_of(b, n));
    bool own = meg_bytes_bytes(meg_onnx_note(n, "megalith.running_var")) > 0;
    b->still += !own && meg_onnx_int(n, "training_mode", 0) == 0;
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    for (int i = 1; i <= 2; i++) /* in training the statistics come out, too */
        meg_onnx_bind(b, n, i, l.weight[1 + i].symbol->parameter);
    return MEG_OK;
}

static meg_status read_dropout(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "dropout", .inputs = 1};
    double rate;
    l.front = meg_onnx_is_front(meg_onnx_in(b, n, 0));
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 1, 0.5, &rate));
    b->drops++;
    if (rate > 0) {
        meg_onnx_attr(&l, "rate=%.9g", rate);
        return meg_onnx_add(b, n, &l);
    }
    meg_onnx_bind_same(b, n, meg_onnx_in(b, n, 0));
    return MEG_OK;
}

/* ---- within a sample ---- */

/* Is it this number throughout, and not trained? */
static meg_status is_number(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s,
                            double number, bool *out)
{
    const meg_onnx_tensor *t = s->constant;
    *out = false;
    if (meg_onnx_is_weight(s) || meg_onnx_is_buffer(s)) return MEG_OK;
    MEG_TRY(b->error, meg_onnx_work(b, n, t->size));
    *out = true;
    for (int64_t i = 0; *out && i < t->size; i++)
        *out = fabs(meg_onnx_number(t, i) - number) <= 0;
    return MEG_OK;
}

/* Scale and offset, inputs 1 and 2. Ones and zeros that the file holds fixed are what exporters write
 * for a normalisation that has neither: they are left out where that can be written again. The offset
 * may be missing. */
static meg_status add_affine(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l,
                             bool sheds)
{
    bool plain[2] = {true, true};
    int count = meg_onnx_in(b, n, 2) ? 2 : 1;
    for (int i = 0; i < count; i++) {
        MEG_TRY(b->error, meg_onnx_want_weight(b, n, 1 + i, &l->weight[i].symbol));
        MEG_TRY(b->error, is_number(b, n, l->weight[i].symbol, 1 - i, &plain[i]));
    }
    l->weights = sheds && plain[0] && plain[1] ? 0 : count;
    b->merged += l->weights && is_shared(l->weight[0].symbol);
    meg_onnx_attr(l, "affine=%d epsilon=%.9g%s", l->weights > 0, meg_onnx_real(n, "epsilon", 1e-5),
                  l->weights == 1 ? " lone=1" : "");
    return MEG_OK;
}

/* Over the last few axes: they become one, at place 1, for a while. */
static meg_status normalise_last(meg_onnx_build *b, const meg_onnx_node *n, int axis)
{
    meg_onnx_layer l = {.op = "layernorm", .inputs = 1};
    int x;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    const meg_value v = b->graph->value[x]; /* the array moves */
    int64_t flat[3] = {v.dims[0], 1, 1};
    for (int i = 1; i < v.rank; i++)
        flat[i < axis ? 1 : 2] *= v.dims[i];
    MEG_TRY(b->error, add_affine(b, n, &l, false));
    l.weight[0].flat = l.weight[1].flat = true;
    meg_onnx_attr(&l, " axes=c");
    l.in[0] = meg_onnx_shaped(b, x, 3, flat);
    if (l.in[0] >= 0) l.in[0] = meg_onnx_swap(b, l.in[0], 2);
    if (l.in[0] < 0) return b->graph->error.status;
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    y->value = meg_onnx_swap(b, y->value, 2);
    if (y->value >= 0) y->value = meg_onnx_shaped(b, y->value, v.rank, v.dims);
    return b->graph->error.status;
}

/* Over the last axis (tokens have features there), over all of a sample, or over some. */
static meg_status read_layernorm(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "layernorm", .inputs = 1};
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &l.in[0]));
    int rank = meg_onnx_rank(b, meg_onnx_in(b, n, 0));
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", -1), rank);
    l.front = axis == rank - 1;
    if (axis < 1) return meg_onnx_refuse(b, n, "axis=%d: not over the batch", axis);
    if (axis > 1 && !l.front) return normalise_last(b, n, axis);
    MEG_TRY(b->error, (l.front ? meg_onnx_data_front : meg_onnx_data)(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, add_affine(b, n, &l, l.front));
    meg_onnx_attr(&l, " axes=%s", l.front ? "c" : "all");
    return meg_onnx_add(b, n, &l);
}

static meg_status read_instancenorm(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "instancenorm", .inputs = 1};
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, add_affine(b, n, &l, true));
    return meg_onnx_add(b, n, &l);
}

/* Set 21 and later, with a scale per channel; before, it was one per group. */
static meg_status read_groupnorm(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "groupnorm", .inputs = 1};
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, add_affine(b, n, &l, true));
    meg_onnx_attr(&l, " groups=%" PRId64, meg_onnx_int(n, "num_groups", 0));
    return meg_onnx_add(b, n, &l);
}

const meg_onnx_row meg_onnx_norms[] = {
    {"BatchNormalization", "epsilon momentum training_mode", 5, 5, read_batchnorm},
    {"LayerNormalization", "axis epsilon stash_type", 2, 3, read_layernorm},
    {"InstanceNormalization", "epsilon", 3, 3, read_instancenorm},
    {"GroupNormalization", "epsilon num_groups stash_type", 3, 3, read_groupnorm},
    {"Dropout", "seed", 1, 3, read_dropout},
    {0}};
