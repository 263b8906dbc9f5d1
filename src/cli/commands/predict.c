/* `megalith predict MODEL`: what a network makes of samples, in evaluation mode, as an array of NumPy. Weights are not
 * trained, so they are frozen: the arena holds no gradients, no states of an optimizer, and nothing is kept for backward.
 */
#include "base/clock.h"
#include "base/files/outfile.h"
#include "cli/report/bar.h"
#include "cli/session.h"
#include "cli/words.h"
#include "cli/writable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *weights, *data, *out, *output;
    bool json;
} settings;

/* ---- the array ---- */

/* As numpy.lib.format has it, version 1.0: the header ends on a multiple of 64 bytes. */
static int64_t put_header(const meg_tensor *t, char out[512])
{
    char text[256];
    int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        t->dtype == MEG_F64 ? "<f8" : "<f4");
    for (int i = 0; i < t->rank; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%" PRId64 "%s", t->shape[i],
                         i + 1 < t->rank ? ", "
                         : t->rank == 1  ? ","
                                         : "");
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    int all = (10 + used + 1 + 63) / 64 * 64, length = all - 10;
    memset(out, ' ', (size_t)all);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(length & 255);
    out[9] = (char)(length >> 8);
    memcpy(out + 10, text, (size_t)used);
    out[all - 1] = '\n';
    return all;
}

static int64_t bytes_of(const meg_tensor *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= t->shape[i];
    return bytes;
}

static meg_status write_array(meg_session *s, const char *path, const meg_tensor *t)
{
    char header[512];
    meg_outfile f = {0};
    int64_t length = put_header(t, header);
    meg_status status = meg_outfile_open(&f, s->error, path);
    if (status == MEG_OK) status = meg_outfile_write(&f, s->error, header, length);
    if (status == MEG_OK) status = meg_outfile_write(&f, s->error, t->data, bytes_of(t));
    if (status == MEG_OK) status = meg_outfile_commit(&f, s->error);
    meg_outfile_close(&f);
    return status;
}

/* ---- the network ---- */

/* The data decide the image, and the classes if they have labels; the plan is for any number of samples. */
static meg_status make_trainer(meg_session *s, const settings *o, meg_data **data)
{
    s->unlabelled = true;
    MEG_TRY(s->error, meg_session_data(s, o->data, &s->data));
    MEG_TRY(s->error, meg_session_graph(s));
    *data = s->data;
    s->data = NULL;
    MEG_CHECK(s->error, *o->weights || meg_model_is_file(s->arguments->place[0]), MEG_EARG,
              "predict: %s has no weights of its own: --weights FILE.safetensors names some",
              s->arguments->place[0]);
    if (meg_graph_parameters(s->graph) > 0)
        MEG_TRY(s->error, meg_session_said(s, meg_graph_freeze(s->graph, "*")));
    MEG_TRY(s->error, meg_session_plan(s, "predict=1"));
    MEG_TRY(s->error, meg_session_trainer(s, ""));
    if (!*o->weights) return MEG_OK;
    return meg_session_said(s, meg_trainer_load(s->trainer, o->weights));
}

static meg_status find_output(meg_session *s, const settings *o, meg_tensor *out)
{
    char names[MEG_TEXT] = "";
    for (int i = 0; meg_output_at(s->trainer, i, out); i++) {
        if (!*o->output || strcmp(out->name, o->output) == 0) return MEG_OK;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 out->name);
    }
    return meg_fail(s->error, MEG_EARG, "--output %s: %s has %s", o->output, s->graph->name, names);
}

static void tell(const meg_session *s, const settings *o, const meg_tensor *y, double seconds)
{
    char shape[128] = "";
    for (int i = 0; i < y->rank; i++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%" PRId64, i ? "x" : "",
                 y->shape[i]);
    if (!o->json) {
        printf("%s: %s of %" PRId64 " samples, %s, in %.2f s: %s\n", s->graph->name, y->name,
               y->shape[0], shape, seconds, o->out);
        return;
    }
    meg_record r = {0};
    meg_session_record(s, &r);
    meg_record_text(&r, "output", y->name);
    meg_record_text(&r, "shape", shape);
    meg_record_int(&r, "samples", y->shape[0]);
    meg_record_real(&r, "seconds", seconds);
    meg_record_end(&r);
}

static meg_status predict(meg_session *s, const settings *o, meg_data *d)
{
    meg_tensor y;
    meg_bar bar;
    double begin = meg_clock();
    bool first = meg_session_speaks(s);
    MEG_TRY(s->error, find_output(s, o, &y));
    y.shape[0] = meg_data_count(d);
    void *room = first ? malloc((size_t)bytes_of(&y) + 1) : NULL;
    meg_status status = !first || room ? MEG_OK
                                       : meg_fail(s->error, MEG_ENOMEM,
                                                  "no memory for %" PRId64 " bytes of predictions",
                                                  bytes_of(&y));
    y.data = room;
    status = meg_session_agree(s, status);
    meg_bar_begin(&bar, "predicting", first);
    meg_trainer_count(s->trainer, meg_bar_show, &bar);
    if (status == MEG_OK) status = meg_session_said(s, meg_predict(s->trainer, d, &y));
    meg_bar_clear(&bar);
    if (status == MEG_OK)
        status = meg_session_agree(s, first ? write_array(s, o->out, &y) : MEG_OK);
    if (status == MEG_OK && first) tell(s, o, &y, meg_clock() - begin);
    free(room);
    return status;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    const settings *o = a->settings;
    meg_data *data = NULL;
    MEG_TRY(e, meg_writable(e, o->out));
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) status = make_trainer(&s, o, &data);
    if (status == MEG_OK) status = predict(&s, o, data);
    meg_data_free(data);
    meg_session_close(&s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"weights", MEG_PARAM_STRING, AT(weights), "",
     "safetensors file, e.g. of train --save; an ONNX file has its own", NULL, 0, 0},
    {"data", MEG_PARAM_STRING, AT(data), NULL,
     "samples, reader:words; npy:images=x.npy labels=none needs no labels", NULL, 0, 0},
    {"out", MEG_PARAM_STRING, AT(out), NULL, "npy file for the outputs", NULL, 0, 0},
    {"output", MEG_PARAM_STRING, AT(output), "",
     "which, by name, where there are several (the first)", NULL, 0, 0},
    {"json", MEG_PARAM_BOOL, AT(json), "no", "one JSON object instead of text", NULL, 0, 0},
    {0},
};

const meg_command meg_command_predict = {
    .name = "predict",
    .usage = "MODEL --weights W.safetensors --data READER:WORDS --out Y.npy",
    .doc = "writes what a network makes of samples, on any number of ranks",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_MODEL |
             MEG_TAKES_RANKS,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
