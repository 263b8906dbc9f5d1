/* From an ONNX file to a graph that trains: see onnx.h.
 *
 *     names     every name becomes a symbol; no name is made twice
 *     needs     from the outputs backwards: what nobody needs is left out
 *     build     node by node, each by the row of its operator
 *     finish    outputs, or the loss over the one there is
 *
 * A file is a model for inference, more often than not; training wants back what it dropped. Batch
 * normalisation trains again, its statistics become running ones; a softmax at the end is left to
 * the loss; what cannot be brought back is told to the listener.
 */
#include "import/onnx/arithmetic.h"
#include "import/onnx/build/kinds.h"
#include "import/onnx/fold/draws.h"
#include "import/onnx/lacks.h"
#include "import/onnx/onnx.h"
#include "import/onnx/operators/operators.h"
#include "import/onnx/rows.h"

#include <string.h>

enum {
    OLDEST = 13, /* operator sets; the newest that was looked at changed no row of ours */
    NEWEST = 27,
    EXTENT_MAX = 1 << 24 /* of an input, as options have it */
};

#define AT(field) offsetof(meg_onnx_options, field)

const meg_param meg_onnx_params[] = {
    {"loss", MEG_PARAM_STRING, AT(loss), "softmax_xent",
     "what the output is trained for, with its words: 'softmax_xent ignore=255'; none: plain "
     "outputs",
     NULL, 0, 0},
    {"output", MEG_PARAM_STRING, AT(output), "", "the output to train, where there are several",
     NULL, 0, 0},
    {"image", MEG_PARAM_AXES, AT(image), "0",
     "extents of a sample (3x224x224) where the file leaves them open", NULL, 0, 1 << 24},
    {"freeze", MEG_PARAM_STRING, AT(freeze), "", "weights that are not trained: names, *, commas",
     NULL, 0, 0},
    {"train", MEG_PARAM_STRING, AT(train), "", "those that are, after all", NULL, 0, 0},
    {"classes_at", MEG_PARAM_CHOICE, AT(classes_at), "auto",
     "the axis of the output that has the classes, where there are more than two: behind the "
     "batch; the last; whichever the file's operators have in front",
     "auto|first|last", 0, 0},
    {0}};

/* ---- needs ---- */

/* Is it trained for this loss? Words may follow the name. */
static bool trains_for(const meg_onnx_build *b, const char *loss)
{
    size_t length = strcspn(b->options.loss, " ");
    return strlen(loss) == length && strncmp(b->options.loss, loss, length) == 0;
}

/* Cross entropies take logits: the function that makes probabilities of them would be applied twice. A
 * LogSoftmax may stay: that of its output is its output. */
static meg_onnx_symbol *before_softmax(meg_onnx_build *b, meg_onnx_symbol *s)
{
    static const struct {
        const char *loss, *op;
    } rows[] = {{"softmax_xent", "Softmax"}, {"bce_logits", "Sigmoid"}};
    const meg_onnx_node *n = s->maker >= 0 ? &b->file->node[s->maker] : NULL;
    for (size_t i = 0; n && i < sizeof rows / sizeof *rows; i++) {
        if (!trains_for(b, rows[i].loss) || !meg_bytes_is(n->op, rows[i].op)) continue;
        meg_onnx_symbol *x = n->inputs ? meg_onnx_symbol_of(b, n->in[0]) : NULL;
        if (!x) return s;
        meg_onnx_warn(b, "the network ends with %s, which the loss brings along: it is left out",
                      rows[i].op);
        return x;
    }
    return s;
}

static bool is_wanted(const meg_onnx_build *b, meg_bytes output)
{
    return b->options.output[0] == '\0' || meg_bytes_is(output, b->options.output);
}

static meg_status want_outputs(meg_onnx_build *b, meg_onnx_symbol *out[MEG_OUTPUTS], int *count)
{
    bool loss = !trains_for(b, "none");
    meg_onnx_file *f = b->file;
    *count = 0;
    for (size_t i = 0; i < f->outputs; i++) {
        if (!is_wanted(b, f->output[i].name)) continue;
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, f->output[i].name);
        MEG_CHECK(b->error, s, MEG_EDATA, "%s: nothing makes the output '%.*s'", f->path,
                  MEG_SPAN_TEXT(f->output[i].name));
        int most = loss && !trains_for(b, "outside") ? 1 : MEG_OUTPUTS;
        MEG_CHECK(b->error, *count < most, MEG_EARG,
                  "%s: it has %zu outputs, but %d at most can be %s: choose one, output=%.*s",
                  f->path, f->outputs, most, loss ? "trained" : "asked for",
                  MEG_SPAN_TEXT(s->name));
        if (loss) s = before_softmax(b, s);
        s->needed = s->output = true;
        s->uses++;
        out[(*count)++] = s;
    }
    MEG_CHECK(b->error, *count, MEG_EARG, "%s: it has no output%s%s", f->path,
              b->options.output[0] ? " " : "", b->options.output);
    return MEG_OK;
}

/* Nodes come in topological order: a walk from the last to the first meets users before makers. */
static void find_needs(meg_onnx_build *b)
{
    meg_onnx_file *f = b->file;
    b->skip = meg_pool_alloc(f->pool, f->nodes + 1);
    for (int i = (int)f->nodes - 1; i >= 0; i--) {
        const meg_onnx_node *n = &f->node[i];
        bool needed = false;
        for (int k = 0; k < n->outputs; k++) {
            const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[k]);
            needed = needed || (s && s->needed);
        }
        b->skip[i] = !needed;
        for (int k = 0; needed && k < n->inputs; k++) {
            meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->in[k]);
            if (!s) continue;
            s->needed = true;
            if (k == 1 && meg_bytes_is(n->op, "CastLike"))
                continue; /* only its type is asked for */
            s->uses++;
            s->user = i;
        }
    }
}

/* ---- inputs ---- */

static meg_status input_shape(const meg_onnx_build *b, const meg_onnx_port *p, int *rank,
                              int64_t dims[MEG_AXES])
{
    const meg_axes *image = &b->options.image;
    bool given = image->count > 1 || image->at[0] > 0;
    *rank = p->rank >= 0 || !given ? p->rank : image->count + 1;
    MEG_CHECK(b->error, *rank >= 1 && *rank <= MEG_AXES, MEG_EUNSUPPORTED,
              "%s: input '%.*s' has %s, but 1 to %d axes are supported%s", b->file->path,
              MEG_SPAN_TEXT(p->name), *rank < 0 ? "an unknown rank" : "another rank", MEG_AXES,
              *rank < 0 ? ": use image=CxHxW" : "");
    bool match = given && image->count == *rank - 1;
    dims[0] = p->rank < 0 || p->dims[0] < 1 || p->dims[0] > EXTENT_MAX ? 1 : p->dims[0];
    for (int i = 1; i < *rank; i++) {
        int64_t said = p->rank < 0 ? -1 : p->dims[i], asked = match ? image->at[i - 1] : -1;
        dims[i] = said > 0 ? said : asked;
        MEG_CHECK(b->error, dims[i] <= EXTENT_MAX, MEG_EDATA,
                  "%s: input '%.*s' has extent %lld on axis %d: up to %d is supported",
                  b->file->path, MEG_SPAN_TEXT(p->name), (long long)dims[i], i, EXTENT_MAX);
        MEG_CHECK(b->error, dims[i] > 0, MEG_EARG,
                  "%s: input '%.*s' leaves axis %d open: say what a sample is, image=CxHxW",
                  b->file->path, MEG_SPAN_TEXT(p->name), i);
        MEG_CHECK(b->error, asked < 0 || asked == dims[i], MEG_EARG,
                  "%s: input '%.*s' has extent %lld on axis %d, but image= says %lld",
                  b->file->path, MEG_SPAN_TEXT(p->name), (long long)dims[i], i, (long long)asked);
    }
    return MEG_OK;
}

static bool is_real(int type)
{
    return type == MEG_ONNX_FLOAT || type == MEG_ONNX_DOUBLE || type == MEG_ONNX_FLOAT16 ||
           type == MEG_ONNX_BFLOAT16;
}

static meg_status add_input(meg_onnx_build *b, const meg_onnx_port *p)
{
    int64_t dims[MEG_AXES];
    int rank;
    meg_onnx_symbol *s = meg_onnx_symbol_of(b, p->name);
    if (!s || s->constant || !s->needed) return MEG_OK;
    bool whole = p->type == MEG_ONNX_INT32 || p->type == MEG_ONNX_INT64;
    MEG_CHECK(b->error, is_real(p->type) || whole, MEG_EUNSUPPORTED,
              "%s: input '%.*s' is %s: real numbers or int32, int64 are supported", b->file->path,
              MEG_SPAN_TEXT(p->name), p->type ? meg_onnx_type_name(p->type) : "no tensor");
    MEG_TRY(b->error, input_shape(b, p, &rank, dims));
    char *name = meg_pool_text(b->graph->pool, "%.*s", MEG_SPAN_TEXT(p->name));
    s->value = meg_graph_input_typed(b->graph, name, whole ? MEG_I32 : MEG_F32, rank, dims);
    return b->graph->error.status;
}

/* ---- nodes ---- */

static meg_status check_attributes(const meg_onnx_build *b, const meg_onnx_node *n,
                                   const meg_onnx_row *row)
{
    meg_bytes name;
    for (int i = 0; meg_onnx_attribute(n, i, &name); i++) {
        const char *at = row->attributes;
        bool known = false;
        while (*at && !known) {
            size_t length = strcspn(at, " ");
            known = length && meg_bytes_equal(name, (meg_bytes){(const uint8_t *)at,
                                                                (const uint8_t *)at + length});
            at += length + (at[length] == ' ');
        }
        if (!known)
            return meg_onnx_refuse(b, n, "attribute '%.*s' is not supported", MEG_SPAN_TEXT(name));
    }
    return MEG_OK;
}

static meg_status build_node(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_row *row = meg_onnx_row_of(n);
    if (meg_onnx_is_own(n) && n->outputs > 0) return meg_onnx_read_own(b, n);
    if (!row) return meg_onnx_refuse(b, n, "this operator is not supported");
    if (n->inputs < row->inputs || n->inputs > row->inputs_max || n->outputs < 1)
        return meg_onnx_refuse(b, n, "%d inputs and %d outputs, but takes %d to %d inputs",
                               n->inputs, n->outputs, row->inputs, row->inputs_max);
    MEG_TRY(b->error, check_attributes(b, n, row));
    if (meg_onnx_has_draw(b, n)) return meg_onnx_read_draw(b, n);
    if (meg_onnx_folds(b, n)) return meg_onnx_fold(b, n);
    if (meg_onnx_waits(b, n)) return meg_onnx_wait(b, n);
    if (meg_onnx_has_arithmetic(b, n)) return meg_onnx_read_arithmetic(b, n);
    if (meg_onnx_has_view(b, n)) return meg_onnx_read_view(b, n, row);
    if (meg_onnx_stands_alone(b, n)) return meg_onnx_read_alone(b, n, row);
    return row->read(b, n);
}

/* A group of nodes that is one operator, or one after the other. */
static meg_status build_group(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_attention *a = b->attention[n - b->file->node];
    bool done = false;
    if (a) MEG_TRY(b->error, meg_onnx_read_attention(b, a, &done));
    for (int i = 0, at; a && !done && (at = meg_onnx_waiting(a, i)) >= 0; i++)
        MEG_TRY(b->error, build_node(b, &b->file->node[at]));
    return done ? MEG_OK : build_node(b, n);
}

static meg_status build_nodes(meg_onnx_build *b)
{
    for (size_t i = 0; i < b->file->nodes; i++) {
        const meg_onnx_node *n = &b->file->node[i];
        if (b->skip[i]) continue;
        MEG_TRY(b->error, build_group(b, n));
        for (int k = 0; k < n->outputs; k++) {
            const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[k]);
            if (s && s->needed && s->value < 0 && s->front < 0 && !s->view && !s->parts &&
                !s->constant && !s->draw && !s->arithmetic)
                return meg_onnx_refuse(b, n, "its output '%.*s' is not supported",
                                       MEG_SPAN_TEXT(s->name));
        }
    }
    return MEG_OK;
}

/* ---- the whole ---- */

/* tf2onnx, or Keras over PyTorch, which calls its inputs so. */
static bool of_keras(const meg_onnx_build *b)
{
    static const char name[] = "keras_tensor";
    if (meg_bytes_is(b->file->producer, "megalith"))
        return false; /* megalith.capture.keras: all is there */
    bool found = meg_bytes_is(b->file->producer, "tf2onnx") ||
                 meg_bytes_is(b->file->producer, "keras");
    for (size_t i = 0; i < b->file->inputs && !found; i++) {
        meg_bytes s = b->file->input[i].name;
        found = meg_bytes_bytes(s) >= (int64_t)strlen(name) &&
                memcmp(s.at, name, strlen(name)) == 0;
    }
    return found;
}

static void tell_losses(const meg_onnx_build *b)
{
    if (of_keras(b))
        meg_onnx_warn(b, "a file of Keras: its batch normalisations are arithmetic with fixed "
                         "statistics, or folded into weights, and its dropouts are gone: training "
                         "will differ");
    if (b->merged)
        meg_onnx_warn(b,
                      "%d normalisations share the scales of others: the exporter merges equal "
                      "numbers, and they will be trained as one",
                      b->merged);
    if (b->still)
        meg_onnx_warn(b,
                      "%d batch normalisations were exported for inference: they train again, "
                      "from their statistics%s",
                      b->still, b->drops ? "" : "; dropout, if the model had any, is gone");
    if (b->folded && !of_keras(b))
        meg_onnx_warn(b,
                      "%d layers have a batch normalisation folded into their weights, by all "
                      "appearance: training will differ; export with optimize=False, or with "
                      "dynamo=False and training=TrainingMode.TRAINING",
                      b->folded);
}

/* Of a batch of one sample, what is drawn for each looks like what is drawn for all. */
static void tell_draws(const meg_onnx_build *b)
{
    if (b->drawn_alone)
        meg_onnx_warn(
            b,
            "%d random masks were exported with a batch of one sample: they are drawn for "
            "each sample; for one draw for all, export with two",
            b->drawn_alone);
}

/* Logits of tokens or pixels whose classes come last: the loss wants them in front. */
static bool has_last(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    int value = s->value >= 0 ? s->value : s->front;
    if (trains_for(b, "none") || b->options.classes_at == MEG_ONNX_CLASSES_FIRST) return false;
    if (b->options.classes_at == MEG_ONNX_CLASSES_AUTO) return meg_onnx_is_front(s);
    return b->graph->value[value].rank > 2;
}

static meg_status finish(meg_onnx_build *b, meg_onnx_symbol *const out[], int count)
{
    meg_graph *g = b->graph;
    for (int i = 0; i < count; i++) {
        if (out[i]->view)
            MEG_TRY(b->error, meg_onnx_settle(b, &b->file->node[out[i]->maker], out[i]));
        MEG_CHECK(b->error, !out[i]->view, MEG_EUNSUPPORTED,
                  "%s: the batch must be the first axis of output '%.*s'", b->file->path,
                  MEG_SPAN_TEXT(out[i]->name));
        MEG_CHECK(b->error, out[i]->value >= 0 || out[i]->front >= 0, MEG_EUNSUPPORTED,
                  "%s: output '%.*s' is a constant, a sequence, or comes from nowhere",
                  b->file->path, MEG_SPAN_TEXT(out[i]->name));
        g->last[i] = has_last(b, out[i]);
        MEG_TRY(b->error,
                (g->last[i] ? meg_onnx_to_front : meg_onnx_straighten)(b, out[i], &g->output[i]));
        g->outputs++;
    }
    if (trains_for(b, "none")) return MEG_OK;
    const char *words = b->options.loss + strcspn(b->options.loss, " ");
    const char *name = meg_pool_text(g->pool, "%.*s", (int)(words - b->options.loss),
                                     b->options.loss);
    for (int i = 0; i < count; i++)
        meg_graph_add_loss(g, name, words, g->output[i], 1);
    return g->error.status;
}

static meg_status build(meg_onnx_build *b)
{
    meg_onnx_symbol *out[MEG_OUTPUTS];
    int count;
    MEG_CHECK(b->error, b->file->opset >= OLDEST && b->file->opset <= NEWEST, MEG_EUNSUPPORTED,
              "%s: operator set %lld, but %d to %d are supported", b->file->path,
              (long long)b->file->opset, OLDEST, NEWEST);
    for (size_t i = 0; i < b->file->tensors; i++) /* which may share numbers: no sum is too large */
        b->weights += b->file->tensor[i].size < INT32_MAX ? b->file->tensor[i].size : INT32_MAX;
    MEG_TRY(b->error, meg_onnx_name_all(b));
    MEG_TRY(b->error, want_outputs(b, out, &count));
    meg_onnx_find_own(b);
    find_needs(b);
    MEG_TRY(b->error, meg_onnx_find_kinds(b));
    meg_onnx_find_smooth(b);
    meg_onnx_find_patterns(b);
    meg_onnx_find_attention(b);
    for (size_t i = 0; i < b->file->inputs; i++)
        MEG_TRY(b->error, add_input(b, &b->file->input[i]));
    MEG_TRY(b->error, meg_onnx_check_operators(b));
    MEG_TRY(b->error, build_nodes(b));
    MEG_TRY(b->error, meg_onnx_choose(b));
    tell_losses(b);
    tell_draws(b);
    meg_onnx_tell_kinds(b);
    return finish(b, out, count);
}

static void close_file(void *file)
{
    meg_onnx_close(file);
}

/* "a/b/net.onnx" -> "net" */
static const char *model_name(meg_onnx_file *f)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    const char *dot = strrchr(name, '.');
    return meg_pool_text(f->pool, "%.*s", (int)(dot ? dot - name : (ptrdiff_t)strlen(name)), name);
}

static meg_status load(meg_onnx_build *b, const char *path, meg_graph **out)
{
    meg_error *e = b->error;
    MEG_TRY(e, meg_onnx_open(e, path, &b->file));
    b->graph = meg_graph_create(model_name(b->file));
    b->graph->file = b->file;
    b->graph->close_file = close_file;
    meg_status status = build(b);
    if (b->graph->error.status != MEG_OK)
        status = meg_fail(e, b->graph->error.status, "%s: %s", path, b->graph->error.message);
    if (status == MEG_OK) *out = b->graph;
    else meg_graph_destroy(b->graph);
    return status;
}

meg_status meg_onnx_load(meg_error *e, const char *path, const char *options,
                         const meg_onnx_listener *listener, meg_graph **out)
{
    meg_onnx_build b = {.error = e, .listener = listener};
    meg_pool *pool = meg_pool_new(); /* of the options' texts */
    meg_status status = meg_options_fill(e, &(meg_form){meg_onnx_params, "onnx", pool}, options,
                                         &b.options);
    if (status == MEG_OK) status = load(&b, path, out);
    meg_pool_free(pool);
    return status;
}
