/* Every operator that can stand in a network is written as ONNX and read again, or refused with a
 * message that names it: the samples of each operator go out and come back with the same outputs.
 * Whether others compute the same from those files is ./do test-export's business.
 */
#include "exec/reference.h"
#include "import/onnx/onnx.h"
#include "scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const double CLOSE = 1e-5; /* float against float, perhaps in another order */

/* Losses, and the phases of operators, which only plans have. */
static const char *const NOT_IN_FILES[] = {
    "absolute_error", "bce_logits", "correct",     "dice",    "dice_mean",
    "expdiv",         "expsum",     "label_count", "mean",    "mse",
    "norm",           "norm_sets",  "top",         "overlap", "var",
    "softmax_xent",   "xent",       "outside"};

static bool is_in_files(const char *op)
{
    for (size_t i = 0; i < sizeof NOT_IN_FILES / sizeof *NOT_IN_FILES; i++)
        if (strcmp(op, NOT_IN_FILES[i]) == 0) return false;
    return true;
}

/* "2x3x4" or, of whole numbers, "2x3@9"; moves on. Returns the rank, 0 at the end. */
static int next_shape(const char **at, int64_t dims[MEG_AXES], int *below)
{
    int rank = 0;
    *below = 0;
    while (**at == ' ')
        (*at)++;
    while (**at && **at != ' ') {
        char *end;
        int64_t number = strtoll(*at, &end, 10);
        if (rank < MEG_AXES) dims[rank++] = number;
        if (*end == '@') *below = (int)strtol(end + 1, &end, 10);
        *at = *end == 'x' ? end + 1 : end;
    }
    return rank;
}

/* In a network all inputs have the batch in common. */
static bool same_batch(const meg_sample *s)
{
    const char *at = s->shapes;
    int64_t dims[MEG_AXES], batch = 0;
    int below;
    for (bool first = true; next_shape(&at, dims, &below); first = false) {
        if (!first && dims[0] != batch) return false;
        batch = dims[0];
    }
    return true;
}

typedef struct drawn { /* an input's numbers */
    int value, below;
} drawn;

static meg_graph *graph_of(const meg_op *op, const meg_sample *s, drawn in[MEG_INPUTS], int *count)
{
    meg_graph *g = meg_graph_create(op->name);
    const char *at = s->shapes;
    int64_t dims[MEG_AXES];
    int rank, values[MEG_INPUTS], below;
    for (*count = 0; *count < MEG_INPUTS && (rank = next_shape(&at, dims, &below)); ++*count) {
        char name[16];
        snprintf(name, sizeof name, "in%d", *count);
        values[*count] = meg_graph_input_typed(g, name, below ? MEG_I32 : MEG_F32, rank, dims);
        in[*count] = (drawn){values[*count], below};
    }
    g->output[0] = meg_graph_add(g, op->name, "node", s->attrs, *count, values);
    g->outputs = 1;
    return g;
}

static void fill(const meg_graph *g, meg_reference *r, const drawn *d)
{
    int64_t count = meg_box_size(&g->value[d->value].shape);
    for (int64_t i = 0; i < count; i++)
        if (d->below) ((int32_t *)r->data[d->value])[i] = (int32_t)(i * 7 % d->below);
        else ((float *)r->data[d->value])[i] = (float)sin((double)(i * 37 % 101 + d->value)) + 1.5f;
}

static bool from_reference(void *context, const meg_value *v,
                           meg_status (*put)(void *to, const float *piece, int64_t count), void *to)
{
    return put(to, ((meg_reference *)context)->data[v->id], meg_box_size(&v->shape)) == MEG_OK;
}

static void compare(const meg_graph *g, const meg_reference *a, const meg_graph *h,
                    const meg_reference *c, const char *what)
{
    const meg_value *y = &g->value[g->output[0]], *z = &h->value[h->output[0]];
    int64_t count = meg_box_size(&y->shape);
    const float *got = c->data[z->id], *want = a->data[y->id];
    if (meg_box_size(&z->shape) != count)
        fail_msg("%s: %lld outputs, but should be %lld", what, (long long)meg_box_size(&z->shape),
                 (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= CLOSE * (1 + fabs((double)want[i]))))
            fail_msg("%s: element %lld is %g, but should be %g", what, (long long)i, (double)got[i],
                     (double)want[i]);
}

/* 1: it went out and came back; 0: it was refused. */
static int try_sample(scratch *s, const meg_op *op, const meg_sample *sample)
{
    drawn in[MEG_INPUTS];
    int count;
    meg_error e = {0};
    char what[300];
    meg_graph *g = graph_of(op, sample, in, &count), *again = NULL;
    snprintf(what, sizeof what, "%s %s (%s)", op->name, sample->attrs, sample->shapes);
    if (g->error.status != MEG_OK) fail_msg("%s: %s", what, g->error.message);
    meg_reference *r = meg_reference_new(g, 1), *q = NULL;
    meg_onnx_source weights = {from_reference, r};
    const char *path = scratch_path(s, "op.onnx");
    meg_status status = meg_onnx_save(&e, path, g, &weights, 0);
    if (status == MEG_OK) {
        if (meg_onnx_load(&e, path, "loss=none", NULL, &again) != MEG_OK)
            fail_msg("%s was written, but not read: %s", what, e.message);
        if (meg_graph_rebatch(again, &e, g->batch) != MEG_OK) fail_msg("%s: %s", what, e.message);
        q = meg_reference_new(again, 1);
        for (int i = 0; i < count; i++) {
            fill(g, r, &in[i]);
            drawn same = {meg_graph_find_value(again, g->value[in[i].value].name), in[i].below};
            fill(g, r, &in[i]);
            if (same.value < 0) fail_msg("%s lost an input", what);
            memcpy(q->data[same.value], r->data[in[i].value],
                   (size_t)(meg_box_size(&g->value[in[i].value].shape) * 4));
        }
        meg_reference_run(r, MEG_EVAL);
        meg_reference_run(q, MEG_EVAL);
        compare(g, r, again, q, what);
    } else if (!strstr(e.message, "node") || !strstr(e.message, op->name))
        fail_msg("%s: refused with '%s', which does not name it", what, e.message);
    else print_message("refused: %s\n", e.message);
    meg_reference_free(q);
    meg_graph_destroy(again);
    meg_reference_free(r);
    meg_graph_destroy(g);
    return status == MEG_OK;
}

static void operators_go_out_and_come_back(void **state)
{
    scratch s = scratch_new();
    const meg_op *op;
    (void)state;
    for (int i = 0; (op = meg_op_at(i)); i++) {
        int through = 0; /* samples */
        if (!is_in_files(op->name)) continue;
        for (const meg_sample *sample = op->samples; sample->shapes; sample++)
            if (same_batch(sample)) through += try_sample(&s, op, sample);
        if (!through && strcmp(op->name, "max_unpool") != 0) /* wants the pool of its indices */
            fail_msg("no sample of %s can be written", op->name);
    }
    scratch_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(operators_go_out_and_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
