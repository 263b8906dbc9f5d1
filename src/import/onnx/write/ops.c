/* The operators as ONNX, set 20, writes them: one row each, here or in a file of its own (operators.def). Attributes are found by the names that
 * users write, so that an operator's struct may stay its own business.
 */
#include "import/onnx/write/writers.h"
#include "ops/attrs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const void *meg_onnx_word(const meg_node *v, const char *name)
{
    for (const meg_param *p = v->op->params; p && p->name; p++)
        if (strcmp(p->name, name) == 0) return (const char *)v->attr + p->offset;
    assert(!"an operator lost a word that its row knows");
    return NULL;
}

static bool flag(const meg_node *v, const char *name)
{
    return *(const bool *)meg_onnx_word(v, name);
}

static int choice(const meg_node *v, const char *name)
{
    return *(const int *)meg_onnx_word(v, name);
}

static double number(const meg_node *v, const char *name)
{
    return *(const double *)meg_onnx_word(v, name);
}

static const meg_value *input(const meg_onnx_out *o, const meg_node *v, int i)
{
    return &o->graph->value[v->in[i]];
}

/* ---- windows ---- */

static void put_windows(const meg_onnx_out *o, const meg_node *v, meg_onnx_made *m,
                        const meg_window win[MEG_SPACE])
{
    int space = input(o, v, 0)->rank - 2;
    const meg_window *w = win + MEG_SPACE - space;
    int64_t kernel[MEG_SPACE], stride[MEG_SPACE], dilation[MEG_SPACE], pads[2 * MEG_SPACE];
    for (int i = 0; i < space; i++) {
        kernel[i] = w[i].taps, stride[i] = w[i].stride, dilation[i] = w[i].dilation;
        pads[i] = w[i].before, pads[space + i] = w[i].after;
    }
    meg_made_ints(m, "kernel_shape", space, kernel);
    meg_made_ints(m, "strides", space, stride);
    meg_made_ints(m, "dilations", space, dilation);
    meg_made_ints(m, "pads", 2 * space, pads);
}

/* A weight that is shared with an embedding, or of a dense layer on tokens, is a matrix: axes of one tap
 * are put behind it. */
static const char *put_wide(meg_onnx_out *o, const meg_node *v)
{
    int64_t axes[MEG_SPACE] = {2, 3, 4};
    const char *name = meg_pool_text(o->pool, "%s/wide", v->name);
    meg_onnx_made m = {.op = "Unsqueeze", .inputs = 2, .in = {o->name[v->in[1]]}, .out = name};
    m.in[1] = meg_onnx_put_wholes(o, v, input(o, v, 0)->rank - 2, axes);
    meg_onnx_put(o, &m, name);
    return name;
}

static meg_status write_conv(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_conv_attr *a = v->attr;
    if (input(o, v, 1)->rank == 2) m->in[1] = put_wide(o, v);
    put_windows(o, v, m, a->win);
    meg_made_int(m, "group", a->groups);
    return MEG_OK;
}

static meg_status write_conv_transpose(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_conv_attr *a = v->attr;
    int64_t extra[MEG_SPACE];
    int space = input(o, v, 0)->rank - 2;
    for (int i = 0; i < space; i++)
        extra[i] = a->output_pad.at[a->output_pad.count == 1 ? 0 : i];
    meg_window win[MEG_SPACE]; /* what is added at the end is cut off less there */
    memcpy(win, a->win, sizeof win);
    for (int i = 0; i < space; i++)
        win[MEG_SPACE - space + i].after += extra[i];
    put_windows(o, v, m, win);
    meg_made_int(m, "group", a->groups);
    meg_made_ints(m, "output_padding", space, extra);
    return MEG_OK;
}

static meg_status write_pool(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_pool_attr *a = v->attr;
    put_windows(o, v, m, a->win);
    meg_made_int(m, "ceil_mode", a->ceil);
    if (strcmp(v->op->name, "avgpool") == 0) meg_made_int(m, "count_include_pad", a->count_pad);
    if (v->outputs > 1) { /* indices: only max_unpool understands them */
        m->second = o->name[v->out[1]];
        meg_onnx_note_own(o, v, m);
    }
    return MEG_OK;
}

/* ---- layers ---- */

/* A node of one input in front of this one; returns the name of its output. */
static const char *put_before(meg_onnx_out *o, const meg_node *v, const char *op, const char *x)
{
    const char *name = meg_pool_text(o->pool, "%s/%s", v->name, op);
    meg_onnx_made m = {.op = op, .inputs = 1, .in = {x}, .out = name};
    meg_onnx_put(o, &m, name);
    return name;
}

static meg_status write_dense(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    if (input(o, v, 0)->rank > 2) m->in[0] = put_before(o, v, "Flatten", m->in[0]);
    meg_made_int(m, "transB", 1);
    return MEG_OK;
}

/* The global pool here has no axes of extent 1 to keep. */
static meg_status write_gap(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const char *name = meg_pool_text(o->pool, "%s/pooled", v->name);
    meg_onnx_made pool = {.op = "GlobalAveragePool", .inputs = 1, .in = {m->in[0]}, .out = name};
    meg_made_note(&pool, "megalith.scope", v->name);
    meg_onnx_put(o, &pool, name);
    meg_wire_free(&pool.attributes);
    m->in[0] = name;
    return MEG_OK;
}

static meg_status write_batchnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_norm_attr *a = v->attr;
    (void)o;
    meg_made_real(m, "epsilon", a->epsilon);
    meg_made_real(m, "momentum", 1 - a->momentum);
    meg_made_note(m, "megalith.running_var", a->variance ? "population" : "unbiased");
    return MEG_OK;
}

static meg_status write_dropout(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    if (choice(v, "per") != MEG_DROP_ELEMENT) meg_onnx_note_own(o, v, m);
    m->in[m->inputs++] = meg_onnx_put_real(o, v, number(v, "rate"));
    return MEG_OK;
}

static void put_epsilon(const meg_node *v, meg_onnx_made *m)
{
    meg_made_real(m, "epsilon", number(v, "epsilon"));
}

/* Scales and offsets that the operator can do without, but ONNX cannot: ones and zeros. */
static meg_status want_affine(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    int64_t count = input(o, v, 0)->dims[1];
    if (flag(v, "affine")) return MEG_OK;
    float *ones = meg_pool_alloc(o->pool, 2 * (size_t)count * sizeof *ones); /* zeros behind them */
    for (int64_t i = 0; i < count; i++)
        ones[i] = 1;
    meg_onnx_note_own(o, v, m);
    m->in[m->inputs++] = meg_onnx_put_reals(o, v, (int)count, ones);
    m->in[m->inputs++] = meg_onnx_put_reals(o, v, (int)count, ones + count);
    return MEG_OK;
}

static meg_status write_instancenorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    MEG_TRY(o->error, want_affine(o, v, m));
    put_epsilon(v, m);
    return MEG_OK;
}

static meg_status write_groupnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    MEG_TRY(o->error, want_affine(o, v, m));
    put_epsilon(v, m);
    meg_made_int(m, "num_groups", *(const int64_t *)meg_onnx_word(v, "groups"));
    o->opset = 21; /* before, it had a scale per group */
    return MEG_OK;
}

/* Over all of a sample, or over the channels, which ONNX wants last. */
static meg_status write_layernorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    bool turned = choice(v, "axes") == 0 && input(o, v, 0)->rank > 2;
    bool vector = turned || input(o, v, 0)->rank == 2; /* its scales, if it had any */
    MEG_CHECK(
        o->error, vector || flag(v, "affine"), MEG_EUNSUPPORTED,
        "%s: layernorm '%s' over whole samples without weights cannot be written as ONNX: use "
        "affine=1",
        o->path, v->name);
    MEG_TRY(o->error, want_affine(o, v, m));
    put_epsilon(v, m);
    meg_made_int(m, "axis", turned ? -1 : 1);
    if (turned) {
        m->in[0] = meg_onnx_put_turned(o, v, m->in[0], NULL, false);
        m->back = true;
    }
    return MEG_OK;
}

/* Rows by ids: their features come last. */
static meg_status write_embedding(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const char *ids = m->in[0];
    m->in[0] = m->in[1];
    m->in[1] = ids;
    m->back = o->graph->value[v->out[0]].rank > 2;
    return MEG_OK;
}

/* ---- points ---- */

static meg_status write_leaky(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    (void)o;
    meg_made_real(m, "alpha", number(v, "slope"));
    return MEG_OK;
}

static meg_status write_gelu(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    (void)o;
    meg_made_text(m, "approximate", choice(v, "approximate") ? "tanh" : "none");
    return MEG_OK;
}

static meg_status write_clip(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    m->in[1] = meg_onnx_put_real(o, v, number(v, "lo"));
    m->in[2] = meg_onnx_put_real(o, v, number(v, "hi"));
    m->inputs = 3;
    return MEG_OK;
}

static meg_status write_softmax(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    (void)o;
    if (flag(v, "log")) m->op = "LogSoftmax";
    meg_made_int(m, "axis", 1);
    return MEG_OK;
}

static meg_status write_axis(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    (void)o, (void)v;
    meg_made_int(m, "axis", 1);
    return MEG_OK;
}

/* Another input has fewer axes, perhaps: ONNX would line them up at the end. */
static void line_up(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m, int i)
{
    const meg_value *a = input(o, v, 0), *b = input(o, v, i);
    int64_t dims[MEG_AXES];
    if (a->rank == b->rank && !meg_kind_lasts(b->kind)) return; /* a weight has a file's axes */
    for (int k = 0; k < a->rank; k++)
        dims[k] = b->shape.hi[k < 2 ? k : MEG_AXES - a->rank + k];
    if (meg_kind_lasts(b->kind)) {
        meg_onnx_put_weight(o, v->in[i], a->rank, dims);
        return;
    }
    dims[0] = b->shape.hi[MEG_N] == 1 ? 1 : 0; /* the batch's own */
    const char *name = meg_pool_text(o->pool, "%s/spread%d", v->name, i);
    meg_onnx_made r = {.op = "Reshape", .inputs = 2, .out = name};
    r.in[0] = m->in[i];
    r.in[1] = meg_onnx_put_wholes(o, v, a->rank, dims);
    meg_onnx_put(o, &r, name);
    m->in[i] = name;
}

static meg_status write_pair(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    for (int i = 1; i < v->inputs; i++)
        line_up(o, v, m, i);
    if (v->inputs > 2) m->op = "Sum"; /* of add */
    return MEG_OK;
}

/* ---- functions and masks ---- */

/* Words that are called so there, too. */
static meg_status write_words(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    (void)o;
    for (const meg_param *p = v->op->params; p->name; p++)
        meg_made_real(m, p->name, number(v, p->name));
    return MEG_OK;
}

static meg_status write_pow(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    m->in[m->inputs++] = meg_onnx_put_real(o, v, number(v, "exponent"));
    return MEG_OK;
}

/* The mask that ONNX has of a comparison, before it becomes numbers. */
static const char *mask_name(meg_onnx_out *o, const meg_node *v)
{
    return meg_pool_text(o->pool, "%s/mask", v->name);
}

static meg_status write_compare(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    static const char *const ops[] = {"Less",           "LessOrEqual", "Greater",
                                      "GreaterOrEqual", "Equal",       "Equal"};
    int relation = choice(v, "relation");
    bool unequal = relation == 5;
    const char *name = mask_name(o, v), *equal = meg_pool_text(o->pool, "%s/equal", v->name);
    if (v->inputs > 1) line_up(o, v, m, 1);
    else m->in[m->inputs++] = meg_onnx_put_real(o, v, number(v, "value"));
    meg_onnx_made c = {.op = ops[relation], .inputs = 2, .in = {m->in[0], m->in[1]}};
    c.out = unequal ? equal : name;
    meg_onnx_put(o, &c, c.out);
    meg_onnx_made not = {.op = "Not", .inputs = 1, .in = {equal}, .out = name};
    if (unequal) meg_onnx_put(o, &not, name);
    m->in[0] = name;
    m->inputs = 1;
    meg_made_int(m, "to", 1); /* float */
    return MEG_OK;
}

/* The condition of Where: the mask of a comparison as it is, others where they are above 0. */
static const char *put_condition(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *mask = input(o, v, 1);
    const meg_node *maker = mask->maker >= 0 ? &o->graph->node[mask->maker] : NULL;
    bool same = mask->rank == input(o, v, 0)->rank;
    if (maker && same && strcmp(maker->op->name, "compare") == 0) return mask_name(o, maker);
    line_up(o, v, m, 1);
    const char *name = meg_pool_text(o->pool, "%s/condition", v->name);
    meg_onnx_made c = {.op = "Greater", .inputs = 2, .in = {m->in[1]}, .out = name};
    c.in[1] = meg_onnx_put_real(o, v, 0);
    meg_onnx_put(o, &c, name);
    return name;
}

static meg_status write_where(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const char *x = m->in[0], *condition = put_condition(o, v, m), *other;
    if (v->inputs > 2) line_up(o, v, m, 2);
    other = v->inputs > 2 ? m->in[2] : meg_onnx_put_real(o, v, number(v, "value"));
    bool invert = flag(v, "invert");
    m->in[0] = condition;
    m->in[1] = invert ? x : other;
    m->in[2] = invert ? other : x;
    m->inputs = 3;
    return MEG_OK;
}

/* Only the sum has a gradient: the peak is noted to be ours. */
static meg_status write_reduce(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_reduce_attr *a = v->attr;
    bool peak = strcmp(v->op->name, "peak") == 0;
    if (peak) meg_onnx_note_own(o, v, m);
    else if (a->mean) m->op = "ReduceMean";
    m->in[m->inputs++] = meg_onnx_put_wholes(o, v, a->axes.count, a->axes.at);
    meg_made_int(m, "keepdims", 1);
    return MEG_OK;
}

/* ---- shapes ---- */

static meg_status write_reshape(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *y = &o->graph->value[v->out[0]];
    int64_t dims[MEG_AXES] = {0}; /* the batch's own */
    for (int i = 1; i < y->rank; i++)
        dims[i] = y->dims[i];
    m->in[m->inputs++] = meg_onnx_put_wholes(o, v, y->rank, dims);
    return MEG_OK;
}

static meg_status write_transpose(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_axes *axes = meg_onnx_word(v, "axes");
    (void)o;
    meg_made_ints(m, "perm", axes->count, axes->at);
    return MEG_OK;
}

static meg_status write_slice(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_slice_attr *a = v->attr;
    const meg_value *x = input(o, v, 0), *y = &o->graph->value[v->out[0]];
    int64_t list[4][MEG_AXES]; /* starts, ends, axes, steps */
    for (int i = 1; i < x->rank; i++) {
        int slot = i < 2 ? i : MEG_AXES - x->rank + i;
        const meg_pick *p = &a->picks.at[slot];
        list[0][i - 1] = p->begin;
        list[1][i - 1] = p->begin + (y->dims[i] - 1) * p->step + 1;
        list[2][i - 1] = i;
        list[3][i - 1] = p->step;
    }
    for (int i = 0; i < 4; i++)
        m->in[m->inputs++] = meg_onnx_put_wholes(o, v, x->rank - 1, list[i]);
    return MEG_OK;
}

static meg_status write_pad(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const meg_pad_attr *a = v->attr;
    const meg_value *x = input(o, v, 0);
    int space = x->rank > 2 ? x->rank - 2 : 1, count = a->pad.count == 1 ? space : a->pad.count;
    int64_t pads[2 * MEG_AXES] = {0};
    for (int i = 0; i < count; i++) {
        int axis = x->rank - count + i, from = a->pad.count == 1 ? 0 : i;
        pads[axis] = a->pad.before[from];
        pads[x->rank + axis] = a->pad.after[from];
    }
    m->in[1] = meg_onnx_put_wholes(o, v, 2 * x->rank, pads);
    m->in[2] = meg_onnx_put_real(o, v, a->value);
    m->inputs = 3;
    meg_made_text(m, "mode", modes[a->mode]);
    return MEG_OK;
}

/* ---- resize ---- */

/* "2" or "1.5x2" of each spatial axis, after ones for batch and channels. */
static const char *put_scales(meg_onnx_out *o, const meg_node *v, const char *text)
{
    float scale[MEG_AXES] = {1, 1};
    int rank = input(o, v, 0)->rank;
    char *end;
    for (int i = 2; i < rank; i++) {
        scale[i] = strtof(text, &end);
        if (*end == 'x') text = end + 1;
    }
    return meg_onnx_put_reals(o, v, rank, scale);
}

static meg_status write_resize(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const coords[] = {NULL, "half_pixel", "align_corners", "asymmetric"};
    static const char *const rounding[] = {"floor", "ceil", "round_prefer_floor",
                                           "round_prefer_ceil"};
    const char *scale = meg_onnx_word(v, "scale");
    const meg_value *y = &o->graph->value[v->out[0]];
    int mode = choice(v, "mode"), where = choice(v, "coords");
    if (where == 0) where = mode == 0 ? 3 : 1;
    meg_made_text(m, "mode", modes[mode]);
    meg_made_text(m, "coordinate_transformation_mode", coords[where]);
    if (mode == 0) meg_made_text(m, "nearest_mode", rounding[choice(v, "round")]);
    m->in[1] = "";
    m->in[2] = *scale ? put_scales(o, v, scale) : "";
    m->inputs = *scale ? 3 : 4;
    if (*scale) return MEG_OK;
    int64_t axes[MEG_SPACE] = {2, 3, 4};
    m->in[3] = meg_onnx_put_wholes(o, v, y->rank - 2, y->dims + 2);
    meg_made_ints(m, "axes", y->rank - 2, axes); /* the batch keeps its extent, whatever it is */
    return MEG_OK;
}

static const meg_onnx_writer WRITERS[] = {
    {"abs", "Abs", NULL},
    {"adaptive_avgpool", "Reshape", meg_onnx_write_adaptive},
    {"add", "Add", write_pair},
    {"attention", "Reshape", meg_onnx_write_attention},
    {"avgpool", "AveragePool", write_pool},
    {"batchnorm", "BatchNormalization", write_batchnorm},
    {"celu", "Celu", write_words},
    {"clip", "Clip", write_clip},
    {"compare", "Cast", write_compare},
    {"concat", "Concat", write_axis},
    {"conv", "Conv", write_conv},
    {"conv_transpose", "ConvTranspose", write_conv_transpose},
    {"dense", "Gemm", write_dense},
    {"div", "Div", write_pair},
    {"dropout", "Dropout", write_dropout},
    {"elu", "Elu", write_words},
    {"embedding", "Gather", write_embedding},
    {"exp", "Exp", NULL},
    {"flatten", "Flatten", write_axis},
    {"gap", "Flatten", write_gap},
    {"gather", "Transpose", meg_onnx_write_gather},
    {"gelu", "Gelu", write_gelu},
    {"groupnorm", "GroupNormalization", write_groupnorm},
    {"gru", "Transpose", meg_onnx_write_gru},
    {"hard_sigmoid", "HardSigmoid", write_words},
    {"hard_swish", "HardSwish", NULL},
    {"instancenorm", "InstanceNormalization", write_instancenorm},
    {"layernorm", "LayerNormalization", write_layernorm},
    {"leaky_relu", "LeakyRelu", write_leaky},
    {"lift", "Reshape", meg_onnx_write_lift},
    {"log", "Log", NULL},
    {"lstm", "Transpose", meg_onnx_write_lstm},
    {"matmul", "MatMul", NULL},
    {"max", "Max", write_pair},
    {"max_unpool", "MaxUnpool", meg_onnx_write_unpool},
    {"maxpool", "MaxPool", write_pool},
    {"min", "Min", write_pair},
    {"mish", "Mish", NULL},
    {"mul", "Mul", write_pair},
    {"neg", "Neg", NULL},
    {"pad", "Pad", write_pad},
    {"position", "Add", NULL},
    {"peak", "ReduceMax", write_reduce},
    {"pow", "Pow", write_pow},
    {"reciprocal", "Reciprocal", NULL},
    {"relu", "Relu", NULL},
    {"reshape", "Reshape", write_reshape},
    {"resize", "Resize", write_resize},
    {"roll", "Identity", meg_onnx_write_roll},
    {"selu", "Selu", write_words},
    {"sigmoid", "Sigmoid", NULL},
    {"slice", "Slice", write_slice},
    {"softmax", "Softmax", write_softmax},
    {"softplus", "Softplus", NULL},
    {"spectralnorm", "Div", meg_onnx_write_spectralnorm},
    {"sqrt", "Sqrt", NULL},
    {"sub", "Sub", write_pair},
    {"sum", "ReduceSum", write_reduce},
    {"take", "Gather", meg_onnx_write_take},
    {"tanh", "Tanh", NULL},
    {"transpose", "Transpose", write_transpose},
    {"weightnorm", "Mul", meg_onnx_write_weightnorm},
    {"where", "Where", write_where},
    {0}};

static const meg_onnx_writer *const OWN[] = {
#define MEG_ONNX(name) &meg_onnx_writes_##name,
#include "import/onnx/operators.def"
#undef MEG_ONNX
};

const meg_onnx_writer *meg_onnx_writer_of(const char *op)
{
    for (const meg_onnx_writer *row = WRITERS; row->op; row++)
        if (strcmp(row->op, op) == 0) return row;
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++)
        if (strcmp(OWN[i]->op, op) == 0) return OWN[i];
    return NULL;
}
