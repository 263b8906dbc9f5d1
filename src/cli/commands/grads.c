/* `megalith grads MODEL`: loss and gradients of one batch with given weights, or with those of an
 * ONNX file, for comparison with other frameworks (tools/torch_compare.py, tools/onnx_training.py).
 * One step with lr=0: weights stay, running statistics move.
 */
#include "cli/session.h"
#include "cli/words.h"

#include <inttypes.h>

typedef struct settings {
    const char *weights, *input, *labels, *out;
} settings;

static bool takes_tokens(const meg_graph *g)
{
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT) return g->value[i].dtype == MEG_I32;
    return false;
}

static meg_status open_batch(meg_session *s, const settings *o)
{
    meg_pool *pool = s->arguments->pool;
    const char *images = meg_quoted(pool, "images", o->input);
    const char *labels = meg_quoted(pool, "labels", o->labels);
    MEG_CHECK(s->error, images && labels, MEG_EARG,
              "%s, %s: names with both ' and \" cannot be "
              "read",
              o->input, o->labels);
    const char *text = meg_pool_text(pool, "npy:%s %s tokens=%d", images, labels,
                                     takes_tokens(s->graph));
    MEG_TRY(s->error, meg_session_data(s, text, &s->data));
    return meg_session_agree(s, meg_session_fits(s, s->data));
}

static meg_status compute(meg_session *s, const settings *o)
{
    meg_report report;
    char batch[48] = "";
    const char *model = s->arguments->place[0];
    /* Networks of the zoo begin with random weights, of which nobody else knows the gradients. */
    MEG_CHECK(s->error, *o->weights || meg_model_is_file(model), MEG_EARG,
              "grads: %s has no weights of its own: --weights FILE.safetensors names some", model);
    /* The model first: labels of a small batch do not tell how many classes there are. */
    MEG_TRY(s->error, meg_session_graph(s));
    MEG_TRY(s->error, open_batch(s, o));
    if (!meg_arguments_has(s->arguments, MEG_TO_PLAN, "batch"))
        snprintf(batch, sizeof batch, "batch=%" PRId64, meg_data_count(s->data));
    const char *plan = meg_pool_text(s->arguments->pool, "%s optimizer=sgd keep_grads=1", batch);
    MEG_TRY(s->error, meg_session_plan(s, plan));
    MEG_TRY(s->error, meg_session_trainer(s, "lr=0 shuffle=no"));
    if (*o->weights)
        MEG_TRY(s->error, meg_session_said(s, meg_trainer_load(s->trainer, o->weights)));
    MEG_TRY(s->error, meg_session_said(s, meg_train(s->trainer, 1, &report)));
    MEG_TRY(s->error, meg_session_said(s, meg_trainer_save_gradients(s->trainer, o->out)));
    meg_record r = {0};
    meg_session_record(s, &r);
    meg_record_real(&r, "loss", report.loss);
    meg_record_real(&r, "accuracy", report.accuracy);
    meg_record_real(&r, "mae", report.absolute_error); /* of real targets */
    meg_record_int(&r, "measured_peak_bytes", report.measured_peak_bytes);
    meg_record_end(&r);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) status = compute(&s, a->settings);
    meg_session_close(&s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"weights", MEG_PARAM_STRING, AT(weights), "",
     "safetensors file, e.g. a state dict of PyTorch; an ONNX file has its own", NULL, 0, 0},
    {"input", MEG_PARAM_STRING, AT(input), NULL, "npy file: images or tokens", NULL, 0, 0},
    {"labels", MEG_PARAM_STRING, AT(labels), NULL, "npy file: classes or targets", NULL, 0, 0},
    {"out", MEG_PARAM_STRING, AT(out), NULL, "safetensors file for gradients, running statistics",
     NULL, 0, 0},
    {0},
};

/* The step has lr=0, and what is written are gradients before the optimizer sees them. */
static bool updates(const void *state)
{
    (void)state;
    return false;
}

#define NO_UPDATE "has no effect: grads changes no weights, and gradients are written without it"
static const meg_rule RULES[] = {
    {"optimizer", "sgd", updates, MEG_WARNS, NO_UPDATE},
    {"momentum", NULL, updates, MEG_WARNS, NO_UPDATE},
    {"nesterov", "no", updates, MEG_WARNS, NO_UPDATE},
    {"weight_decay", NULL, updates, MEG_WARNS, NO_UPDATE},
    {"beta1", NULL, updates, MEG_WARNS, NO_UPDATE},
    {"beta2", NULL, updates, MEG_WARNS, NO_UPDATE},
    {"epsilon", NULL, updates, MEG_WARNS, NO_UPDATE},
    {0},
};

const meg_command meg_command_grads = {
    .name = "grads",
    .usage = "MODEL [--weights IN.safetensors] --input X.npy --labels Y.npy --out OUT.safetensors",
    .doc = "computes loss and gradients of one batch, prints one JSON object",
    .more = "batch= is the number of samples, unless given.\n",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_MODEL | MEG_TAKES_RANKS,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
