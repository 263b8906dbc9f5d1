/* `megalith forward MODEL`: what a network makes of given inputs, by the plain-C operators, for
 * comparison with other frameworks (tools/onnx_conformance.py). Tensors go in under the names of
 * the inputs, or the only one as an array of NumPy; out come "output0", "output1", ..., with the
 * axes that the file gives them.
 */
#include "cli/report/bar.h"
#include "cli/session.h"
#include "cli/words.h"
#include "data/npy_file.h"
#include "exec/reference.h"
#include "import/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *input, *out;
    bool train;
} settings;

/* ---- inputs ---- */

typedef struct given { /* one of the two is open */
    meg_safetensors *file;
    meg_npy array;
    bool numpy;
} given;

static bool is_numpy(const char *path)
{
    size_t length = strlen(path), tail = strlen(".npy");
    const char *end = length > tail ? path + length - tail : path;
    return strcmp(end, ".npy") == 0 || strcmp(end, ".npz") == 0;
}

static meg_status open_given(meg_session *s, const char *path, given *out)
{
    int inputs = 0;
    *out = (given){.array = {.fd = -1}, .numpy = is_numpy(path)};
    if (!out->numpy) return meg_safetensors_open(s->error, path, &out->file);
    for (int i = 0; i < s->graph->values; i++)
        inputs += s->graph->value[i].kind == MEG_INPUT;
    MEG_CHECK(s->error, inputs == 1, MEG_EARG,
              "%s is one array, but %s has %d inputs: a safetensors file has their names", path,
              s->graph->name, inputs);
    return meg_npy_open(s->error, path, NULL, &out->array);
}

static void close_given(given *f)
{
    meg_safetensors_close(f->file);
    if (f->numpy) meg_npy_close(&f->array);
}

/* Shape and type of the tensor for an input; `data` is not set of an array. */
static meg_status find(meg_session *s, const given *f, const char *name, meg_saved *out)
{
    int at = f->numpy ? 0 : meg_safetensors_find(f->file, name);
    MEG_CHECK(s->error, at >= 0, MEG_EDATA, "%s: there is no input '%s'", s->graph->name, name);
    if (!f->numpy) return meg_safetensors_at(f->file, s->error, at, out);
    const meg_npy *a = &f->array;
    *out = (meg_saved){
        .name = name, .rank = a->rank, .dtype = a->type->to_whole ? MEG_I32 : MEG_F32};
    memcpy(out->dims, a->dims, sizeof a->dims);
    return MEG_OK;
}

/* The graph's batch becomes the input's. */
static meg_status rebatch(meg_session *s, const given *f)
{
    meg_graph *g = s->graph;
    for (int i = 0; i < g->values; i++) {
        meg_saved t;
        if (g->value[i].kind != MEG_INPUT) continue;
        MEG_TRY(s->error, find(s, f, g->value[i].name, &t));
        if (t.rank > 0 && t.dims[0] != g->batch) return meg_graph_rebatch(g, s->error, t.dims[0]);
    }
    return MEG_OK;
}

/* Numbers of an array, as the input has them: whole ones are real numbers, too. */
static meg_status fill_numpy(meg_session *s, const meg_npy *a, meg_dtype dtype, void *to)
{
    _Alignas(8) char piece[8 * MEG_NPY_PIECE];
    int64_t whole[MEG_NPY_PIECE];
    for (int64_t at = 0; at < a->count; at += MEG_NPY_PIECE) {
        int64_t count = a->count - at < MEG_NPY_PIECE ? a->count - at : MEG_NPY_PIECE;
        MEG_TRY(s->error, meg_npy_read(a, s->error, at, count, piece));
        if (dtype == MEG_F32) {
            a->type->to_float((float *)to + at, piece, count, 1);
            continue;
        }
        a->type->to_whole(whole, piece, count);
        for (int64_t i = 0; i < count; i++) {
            MEG_CHECK(s->error, whole[i] == (int32_t)whole[i], MEG_EDATA,
                      "%s has the number %lld, but ids have 32 bits", a->name, (long long)whole[i]);
            ((int32_t *)to)[at + i] = (int32_t)whole[i];
        }
    }
    return MEG_OK;
}

static meg_status fill(meg_session *s, const given *f, const meg_value *v, void *to)
{
    meg_saved t = {0};
    MEG_TRY(s->error, find(s, f, v->name, &t));
    bool same = t.rank == v->rank && (t.dtype == v->dtype || (f->numpy && v->dtype == MEG_F32));
    for (int i = 0; same && i < t.rank; i++)
        same = t.dims[i] == v->dims[i];
    MEG_CHECK(s->error, same, MEG_EDATA, "input '%s' has another shape or type than %s takes",
              v->name, s->graph->name);
    if (f->numpy) return fill_numpy(s, &f->array, v->dtype, to);
    memcpy(to, t.data, (size_t)(meg_box_size(&v->shape) * meg_dtype_bytes(t.dtype)));
    return MEG_OK;
}

static meg_status fill_all(meg_session *s, const given *f, meg_reference *r)
{
    for (int i = 0; i < s->graph->values; i++)
        if (s->graph->value[i].kind == MEG_INPUT)
            MEG_TRY(s->error, fill(s, f, &s->graph->value[i], r->data[i]));
    return MEG_OK;
}

/* ---- outputs ---- */

/* Moves axis 1 behind the others, where the file has it. */
static void turn(meg_pool *pool, meg_saved *t)
{
    int64_t samples = t->dims[0], channels = t->dims[1], inner = 1,
            bytes = meg_dtype_bytes(t->dtype);
    for (int i = 2; i < t->rank; i++) {
        inner *= t->dims[i];
        t->dims[i - 1] = t->dims[i];
    }
    t->dims[t->rank - 1] = channels;
    const char *from = t->data;
    char *to = meg_pool_alloc(pool, (size_t)(samples * channels * inner * bytes));
    t->data = to;
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < inner; i++)
            for (int64_t c = 0; c < channels; c++, to += bytes)
                memcpy(to, from + ((n * channels + c) * inner + i) * bytes, (size_t)bytes);
}

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
        if (g->last[i]) turn(s->arguments->pool, &list[i]);
    }
    meg_saved_file file = {.count = g->outputs, .tensor = list};
    return meg_safetensors_write(s->error, path, &file);
}

static meg_status compute(meg_session *s, const given *f, const settings *o)
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
    given f = {0};
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK && !meg_model_is_file(a->place[0]))
        status = meg_fail(e, MEG_EARG, "forward: %s is no ONNX file (NAME.onnx)", a->place[0]);
    if (status == MEG_OK) status = meg_session_graph(&s);
    if (status == MEG_OK) status = open_given(&s, o->input, &f);
    if (status == MEG_OK) status = compute(&s, &f, o);
    close_given(&f);
    meg_session_close(&s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"input", MEG_PARAM_STRING, AT(input), NULL,
     "safetensors file with the inputs, or the only one as .npy or .npz", NULL, 0, 0},
    {"out", MEG_PARAM_STRING, AT(out), NULL, "safetensors file for the outputs", NULL, 0, 0},
    {"train", MEG_PARAM_BOOL, AT(train), "no", "as in training: batch statistics, dropout", NULL, 0,
     0},
    {0},
};

const meg_command meg_command_forward = {
    .name = "forward",
    .usage = "FILE.onnx --input IN.safetensors|X.npy --out OUT.safetensors [--loss none]",
    .doc = "computes the outputs of an ONNX file, to compare with other frameworks",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_MODEL,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
