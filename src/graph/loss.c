/* Losses of a graph: see graph.h.
 *
 *     logits -----------------+-> loss -> g->loss[]
 *     label  -> label_count --/              classes: i32, no channels; right answers are counted
 *     (weight of classes, on request)        targets: real, the shape of the logits; their mean
 *                                            absolute error is taken
 *
 * The denominator depends on labels alone: a plan sums it over all micro-batches before the first
 * loss is computed.
 */
#include "graph/op.h"

#include <string.h>

typedef struct wishes { /* what the options say that is not for the loss alone */
    char loss[MEG_TEXT];
    char labels[64];  /* options of those who read labels */
    char target[128]; /* name of what it compares with; "": any */
    bool weighted;
} wishes;

static bool read_wishes(meg_graph *g, const char *attrs, wishes *w)
{
    char text[MEG_TEXT], word[32] = "";
    *w = (wishes){0};
    if (!attrs) return true;
    if (strlen(attrs) >= sizeof text) {
        meg_fail(&g->error, MEG_EARG, "%s: more than %zu bytes of options of the loss", g->name,
                 sizeof text - 1);
        return false;
    }
    strcpy(w->loss, attrs);
    w->weighted = meg_options_take(w->loss, "weighted", word, sizeof word) && word[0] != '0';
    if (meg_options_take(w->loss, "target", w->target, sizeof w->target) && !w->target[0]) {
        meg_fail(&g->error, MEG_EARG, "%s: target= of a loss is empty, or more than %zu bytes long",
                 g->name, sizeof w->target - 1);
        return false;
    }
    strcpy(text, w->loss);
    if (meg_options_take(text, "ignore", word, sizeof word))
        snprintf(w->labels, sizeof w->labels, "ignore=%s", word);
    return true;
}

static bool same_labels(const meg_value *x, bool real, const meg_box *shape)
{
    bool kind = x->kind == MEG_LABEL && real == (x->dtype != MEG_I32);
    return kind && meg_box_equal(&x->shape, shape);
}

/* Losses of one shape share their labels: the two heads of Inception. Those with names of their own do not. */
static int find_labels(const meg_graph *g, bool real, const meg_box *shape)
{
    for (int i = 0; i < g->values; i++) {
        const meg_value *x = &g->value[i];
        const char *usual = real ? "target" : "label";
        bool plain = strncmp(x->name, usual, strlen(usual)) == 0;
        if (plain && same_labels(x, real, shape)) return i;
    }
    return -1;
}

/* The labels of this name; -1: there are none yet, -2: something else has the name. */
static int named_labels(meg_graph *g, const char *name, bool real, const meg_box *shape)
{
    int id = meg_graph_find_value(g, name);
    if (id >= 0 && !same_labels(&g->value[id], real, shape)) {
        meg_fail(&g->error, MEG_EARG,
                 "target=%s: there is already a value of this name, and it is no %s of this loss's "
                 "shape: use another name",
                 name, real ? "target" : "label");
        return -2;
    }
    return id;
}

/* Real targets have all axes of the logits. */
static int add_targets(meg_graph *g, const char *name, int logits)
{
    const meg_value *x = &g->value[logits];
    meg_value made = {.kind = MEG_LABEL, .dtype = MEG_F32, .name = name, .maker = -1};
    made.rank = x->rank;
    made.shape = x->shape;
    memcpy(made.dims, x->dims, sizeof made.dims);
    return meg_graph_add_leaf_like(g, &made);
}

/* Class labels have all axes but the channels. */
static int add_labels(meg_graph *g, bool real, const char *suffix, const char *target, int logits)
{
    const meg_value *x = &g->value[logits];
    meg_box shape = x->shape;
    if (!real) shape.hi[MEG_C] = 1;
    int same = *target ? named_labels(g, target, real, &shape) : find_labels(g, real, &shape);
    if (same != -1) return same;
    const char *name = *target ? meg_pool_text(g->pool, "%s", target)
                               : meg_pool_text(g->pool, "%s%s", real ? "target" : "label", suffix);
    if (real) return add_targets(g, name, logits);
    int64_t dims[MEG_AXES];
    int rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != 1) dims[rank++] = x->dims[i];
    return meg_graph_label(g, name, rank, dims);
}

/* One per channel of the logits: fixed, so that it is loaded and saved, and has no gradient. */
static int add_weights(meg_graph *g, const char *loss, int logits)
{
    int64_t classes = g->value[logits].shape.hi[MEG_C];
    return meg_graph_parameter(g, meg_pool_text(g->pool, "%s.weight", loss),
                               &(meg_weight_spec){.kind = MEG_FIXED,
                                                  .shape = meg_box_of(1, classes, 1, 1, 1),
                                                  .rank = 1,
                                                  .dims = {classes},
                                                  .start = MEG_ONES});
}

_Static_assert((int)MEG_LOSSES <= (int)MEG_OUTPUTS, "each loss has an output");

int meg_graph_results(const meg_graph *g, int out[MEG_OUTPUTS])
{
    int count = 0;
    for (int i = 0; i < g->losses; i++)
        out[count++] = g->node[g->value[g->loss[i].value].maker].in[0];
    for (int i = 0; g->losses == 0 && i < g->outputs; i++)
        out[count++] = g->output[i];
    if (count == 0 && g->nodes > 0) out[count++] = g->node[g->nodes - 1].out[0];
    return count;
}

bool meg_graph_late(const meg_graph *g)
{
    for (int i = 0; i < g->losses; i++)
        if (g->node[g->value[g->loss[i].value].maker].op->late) return true;
    return false;
}

bool meg_graph_awaits(const meg_graph *g, int value)
{
    for (int i = 0; i < g->losses; i++) {
        const meg_node *v = &g->node[g->value[g->loss[i].value].maker];
        if (v->op->late && v->in[1] == value) return true;
    }
    return false;
}

/* Its target is the gradient by these logits, which no other loss can share. Nothing is counted, nothing is right or
 * wrong. */
static int add_late(meg_graph *g, const char *op, const char *suffix, const wishes *w, int logits)
{
    const char *usual = meg_pool_text(g->pool, "target%s", suffix);
    const char *target = *w->target ? meg_pool_text(g->pool, "%s", w->target) : usual;
    if (meg_graph_find_value(g, target) >= 0) {
        meg_fail(&g->error, MEG_EARG,
                 "the loss \"%s\" has a target of its own, but there is already a value '%s': give "
                 "it another name by target=",
                 op, target);
        return -1;
    }
    int in[] = {logits, add_targets(g, target, logits)};
    return meg_graph_add(g, op, meg_pool_text(g->pool, "loss%s", suffix), w->loss, 2, in);
}

/* May it stand beside those that the graph has? */
static bool allowed(meg_graph *g, const meg_op *known)
{
    bool late = known && known->late;
    if (g->losses == MEG_LOSSES)
        meg_fail(&g->error, MEG_EARG, "%s: more than %d losses", g->name, MEG_LOSSES);
    else if (g->losses && late != meg_graph_late(g))
        meg_fail(&g->error, MEG_EARG,
                 "%s: a loss outside and one inside do not go together: end every output with the "
                 "loss \"outside\", and compute all of them there",
                 g->name);
    return g->error.status == MEG_OK;
}

int meg_graph_add_loss(meg_graph *g, const char *op, const char *attrs, int logits, double weight)
{
    const meg_op *known = meg_op_find(op);
    bool real = known && known->real_target;
    wishes w;
    if (g->error.status != MEG_OK || logits < 0 || !read_wishes(g, attrs, &w)) return -1;
    if (!allowed(g, known)) return -1;
    const char *suffix = g->losses ? meg_pool_text(g->pool, "%d", g->losses + 1) : "";
    if (known && known->late) {
        int late = add_late(g, op, suffix, &w, logits);
        if (late >= 0) g->loss[g->losses++] = (meg_loss){late, weight};
        return late;
    }
    const char *name = meg_pool_text(g->pool, "loss%s", suffix);
    int label = add_labels(g, real, suffix, w.target, logits);
    if (label < 0) return -1;
    int weights = w.weighted ? add_weights(g, name, logits) : -1;
    int count = meg_graph_add(g, "label_count", meg_pool_text(g->pool, "label_count%s", suffix),
                              w.labels, w.weighted && !real ? 2 : 1, (int[]){label, weights});
    int loss = meg_graph_add(g, op, name, w.loss, w.weighted ? 4 : 3,
                             (int[]){logits, label, count, weights});
    if (g->correct < 0)
        g->correct = real ? meg_graph_add(g, "absolute_error", "absolute_error",
                                          known->by_sigmoid ? "sigmoid=yes" : "", 3,
                                          (int[]){logits, label, count})
                          : meg_graph_add(g, "correct", "correct", w.labels, 2,
                                          (int[]){logits, label});
    g->loss[g->losses++] = (meg_loss){loss, weight};
    return loss;
}
