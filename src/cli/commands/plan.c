/* `megalith plan MODEL`: what training would need, without training. */
#include "cli/planfile.h"
#include "cli/ranks.h"
#include "cli/session.h"
#include "machine/memory.h"

typedef struct settings {
    const char *data, *save;
    int64_t ranks;
    bool alternatives, json;
} settings;

static void print_json(const meg_session *s)
{
    const meg_plan *p = s->plan;
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    meg_record r = {0};
    meg_session_record(s, &r);
    meg_record_int(&r, "nodes", t->graph->nodes);
    meg_record_int(&r, "instructions", t->station[0].instrs);
    meg_record_int(&r, "held_bytes", p->bytes[MEG_HELD]);
    meg_record_int(&r, "step_bytes", p->bytes[MEG_STEP]);
    meg_record_int(&r, "frame_bytes", p->bytes[MEG_FRAME]);
    int64_t machine = meg_memory_look("").most;
    meg_record_int(&r, "machine_bytes", machine);
    meg_record_int(&r, "machines", meg_ranks_machines(s, machine));
    meg_record_end(&r);
}

static meg_status save(meg_session *s, const char *path)
{
    return meg_session_speaks(s) ? meg_plan_file_write(s->error, path, s->plan) : MEG_OK;
}

/* A machine that was described has as many as it says; 0: none was. */
static meg_status ranks_of_machine(const meg_session *s, int *ranks)
{
    meg_machine m;
    if (!*s->ctx->options.machine) return MEG_OK;
    MEG_TRY(s->error, meg_context_machine(s->ctx, s->error, 1, &m));
    *ranks = (int)(m.nodes * m.ranks);
    return MEG_OK;
}

static meg_status print_plan(meg_session *s, const settings *o)
{
    if (o->data[0]) MEG_TRY(s->error, meg_session_data(s, o->data, &s->data));
    MEG_TRY(s->error, meg_session_graph(s));
    int ranks = (int)o->ranks;
    if (!ranks) MEG_TRY(s->error, ranks_of_machine(s, &ranks));
    s->table = o->alternatives;
    if (ranks) MEG_TRY(s->error, meg_ranks_imagine(s, ranks));
    else MEG_TRY(s->error, meg_session_plan(s, ""));
    if (o->save[0]) MEG_TRY(s->error, meg_session_agree(s, save(s, o->save)));
    if (o->json) print_json(s);
    else meg_ranks_summary(s, stdout);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) status = print_plan(&s, a->settings);
    meg_session_close(&s);
    return status;
}

static const meg_param PARAMS[] = {
    {"data", MEG_PARAM_STRING, offsetof(settings, data), "",
     "data set that would be trained on: READER:WORDS; decides image, classes, last batch", NULL, 0,
     0},
    {"save", MEG_PARAM_STRING, offsetof(settings, save), "",
     "writes the plan as a text for --plan, to be read and edited", NULL, 0, 0},
    {"ranks", MEG_PARAM_INT, offsetof(settings, ranks), "0",
     "as it would be on so many ranks, without starting them", NULL, 0, 1 << 20},
    {"alternatives", MEG_PARAM_BOOL, offsetof(settings, alternatives), "no",
     "with --ranks or --machine: all plans that were thought of, and why they were not chosen",
     NULL, 0, 0},
    {"json", MEG_PARAM_BOOL, offsetof(settings, json), "no", "one JSON object", NULL, 0, 0},
    {0},
};

const meg_command meg_command_plan = {
    .name = "plan",
    .usage = "MODEL [--ranks N] [--word value ...]",
    .doc = "predicts memory and time of training a model",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_MODEL,
    .priced = true,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
