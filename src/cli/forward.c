/* `megalith forward MODEL`: what a network makes of given inputs, by the plain-C operators, for
 * comparison with other frameworks (tools/onnx_conformance.py). Tensors go in under the names of
 * the inputs; out come "output0", "output1", ...
 */
#include "cli/bar.h"
#include "cli/session.h"
#include "exec/reference.h"
#include "import/safetensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct settings {
    char input[MEG_TEXT], out[MEG_TEXT];
    bool train;
} settings;

/* ---- inputs ---- */

/* The graph's batch becomes the input's. */
static meg_status rebatch(meg_session *s, const meg_safetensors *f)
{
    meg_graph *g = s->graph;
    for (int i = 0; i < g->values; i++) {
        meg_saved t;
        int at = meg_safetensors_find(f, g->value[i].name);
        if (g->value[i].kind != MEG_INPUT || at < 0) continue;
        MEG_TRY(s->error, meg_safetensors_at(f, s->error, at, &t));
        if (t.rank > 0 && t.dims[0] != g->batch) return meg_graph_rebatch(g, s->error, t.dims[0]);
    }
    return MEG_OK;
}

static meg_status fill(meg_session *s, const meg_safetensors *f, const meg_value *v, void *to)
{
    meg_saved t = {0};
    int at = meg_safetensors_find(f, v->name);
    MEG_CHECK(s->error, at >= 0, MEG_EDATA, "%s: there is no input '%s'", s->graph->name, v->name);
    MEG_TRY(s->error, meg_safetensors_at(f, s->error, at, &t));
    bool same = t.rank == v->rank && t.dtype == v->dtype;
    for (int i = 0; same && i < t.rank; i++)
        same = t.dims[i] == v->dims[i];
    MEG_CHECK(s->error, same, MEG_EDATA, "input '%s' has another shape or type than %s takes",
              v->name, s->graph->name);
    memcpy(to, t.data, (size_t)(meg_box_size(&v->shape) * meg_dtype_bytes(t.dtype)));
    return MEG_OK;
}

static meg_status fill_all(meg_session *s, const meg_safetensors *f, meg_reference *r)
{
    for (int i = 0; i < s->graph->values; i++)
        if (s->graph->value[i].kind == MEG_INPUT)
            MEG_TRY(s->error, fill(s, f, &s->graph->value[i], r->data[i]));
    return MEG_OK;
}

/* ---- outputs ---- */

static meg_status save(meg_session *s, const meg_reference *r, const char *path)
{
    const meg_graph *g = s->graph;
    meg_saved list[MEG_OUTPUTS] = {0};
    char name[MEG_OUTPUTS][16];
    for (int i = 0; i < g->outputs; i++) {
        const meg_value *v = &g->value[g->output[i]];
        snprintf(name[i], sizeof name[i], "output%d", i);
        list[i] = (meg_saved){
            .name = name[i], .dtype = v->dtype, .rank = v->rank, .data = r->data[v->id]};
        memcpy(list[i].dims, v->dims, sizeof v->dims);
    }
    meg_saved_file file = {.count = g->outputs, .tensor = list};
    return meg_safetensors_write(s->error, path, &file);
}

static meg_status compute(meg_session *s, const meg_safetensors *f, const settings *o)
{
    MEG_TRY(s->error, rebatch(s, f));
    meg_reference *r = meg_reference_new(s->graph, (uint64_t)s->ctx->options.seed);
    meg_status status = fill_all(s, f, r);
    if (status == MEG_OK) {
        meg_bar bar;
        meg_bar_begin(&bar, "computing nodes", true);
        r->watch = meg_bar_show;
        r->context = &bar;
        meg_reference_run(r, o->train ? MEG_FORWARD : MEG_EVAL);
        meg_bar_clear(&bar);
        status = save(s, r, o->out);
    }
    meg_reference_free(r);
    return status;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    const settings *o = a->settings;
    meg_safetensors *f = NULL;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK && !meg_session_is_file(a->place[0]))
        status = meg_fail(e, MEG_EARG, "forward: %s is no ONNX file (NAME.onnx)", a->place[0]);
    if (status == MEG_OK) status = meg_session_graph(&s);
    if (status == MEG_OK) status = meg_safetensors_open(e, o->input, &f);
    if (status == MEG_OK) status = compute(&s, f, o);
    meg_safetensors_close(f);
    meg_session_close(&s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"input", MEG_PARAM_TEXT, AT(input), NULL, "safetensors file with the inputs", NULL, 0, 0},
    {"out", MEG_PARAM_TEXT, AT(out), NULL, "safetensors file for the outputs", NULL, 0, 0},
    {"train", MEG_PARAM_BOOL, AT(train), "no", "as in training: batch statistics, dropout", NULL, 0,
     0},
    {0},
};

const meg_command meg_command_forward = {
    .name = "forward",
    .usage = "FILE.onnx --input IN.safetensors --out OUT.safetensors [--loss none]",
    .doc = "computes the outputs of an ONNX file, to compare with other frameworks",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_MODEL,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
