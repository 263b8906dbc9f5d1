/* `megalith plan MODEL`: what training would need, without training. */
#include "cli/page/path.h"
#include "cli/picture.h"
#include "cli/ranks.h"
#include "cli/session.h"
#include "cli/trace.h"
#include "cli/writable.h"
#include "exec/probe/machine.h"
#include "machine/memory.h"
#include "plan/replay/resources.h"
#include "train/checkpoint/planfile.h"

#include <inttypes.h>
#include <string.h>

typedef struct settings {
    const char *data, *save;
    char report[MEG_TEXT], trace[MEG_TEXT];
    int64_t ranks;
    bool alternatives, json;
} settings;

/* ---- whose bytes and seconds they are ---- */

/* What this device is called; formats and sizes of buffers are its kernels'. */
static meg_prices_head kernels_of(const meg_session *s)
{
    return meg_machine_head(s->ctx->device, s->ctx->comm);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* Each thread has scratch of its own, so bytes are those of so many. */
static void tell_bytes(const meg_session *s, const meg_machine *m, FILE *out)
{
    const meg_prices_head head = kernels_of(s);
    const char *name = *m->device ? m->device : *m->name ? m->name : "the described machine";
    int there = (int)meg_cores_of_rank(m);
    if (!meg_context_computes(s->ctx, m)) {
        fprintf(out,
                "  bytes are those of this machine's kernels (%s, %d thread%s): with %s they may "
                "differ\n",
                head.isa, head.threads, plural(head.threads), name);
        return;
    }
    fprintf(out, "  bytes are exact where ranks compute with %s and %d thread%s", head.isa,
            head.threads, plural(head.threads));
    if (there != head.threads)
        fprintf(out, "; a rank of the description has %d core%s", there, plural(there));
    fputc('\n', out);
}

/* Prices are those of ranks that measured at once; nobody may have done so with as many as there are on a node. */
static void tell_seconds(const meg_session *s, const meg_machine *m, FILE *out)
{
    const meg_prices *p = s->ctx->prices;
    bool described = *s->ctx->options.machine;
    const char *what = described ? "prices" : "prices and links";
    if (m->flops > 0) {
        fputs("  seconds are those of flops=, bandwidth= and launch= of the description\n", out);
        return;
    }
    if (!p) {
        fprintf(out, "  seconds are guesses: %s are round figures, of no machine in particular\n",
                what);
        return;
    }
    const meg_prices_head *head = meg_prices_head_of(p);
    fprintf(out, "  seconds are those of this machine's kernels with %d thread%s", head->threads,
            plural(head->threads));
    if (!meg_context_computes(s->ctx, m)) fprintf(out, ", not those of %s: give flops=", m->device);
    if (head->ranks == 1 && m->ranks > 1) fprintf(out, "; %s are those of one rank alone", what);
    else if (head->ranks > 1) fprintf(out, "; %s are those of %d ranks at once", what, head->ranks);
    if (head->ranks != m->ranks && !described)
        fprintf(out, " (megalith probe -np %" PRId64 " measures)", m->ranks);
    fputc('\n', out);
}

static meg_status tell_machine(const meg_session *s, FILE *out)
{
    meg_machine m;
    int64_t ranks = s->plan->world.ranks;
    bool described = *s->ctx->options.machine;
    if (ranks == meg_ranks(s->ctx) && !described) return MEG_OK;
    MEG_TRY(s->error, meg_context_machine(s->ctx, s->error, (int)ranks, &m));
    int64_t has = m.nodes * m.ranks, nodes = (ranks + m.ranks - 1) / m.ranks;
    if (described && ranks > has)
        fprintf(out,
                "  the described machine has %" PRId64 " rank%s on %" PRId64 " node%s: %" PRId64
                " want %" PRId64 " such nodes\n",
                has, plural(has), m.nodes, plural(m.nodes), ranks, nodes);
    if (described) tell_bytes(s, &m, out);
    tell_seconds(s, &m, out);
    return MEG_OK;
}

/* ---- printing ---- */

/* Seconds of kernels, messages and sums on the way that decides the step. */
static void record_path(const meg_session *s, meg_record *r)
{
    const meg_foresight *f = s->ctx->foresight;
    const char *line = meg_picture_path(s);
    if (!*line) return;
    meg_record_text(r, "critical_path", line + sizeof "critical path:");
    meg_record_real(r, "critical_kernel_seconds", meg_path_seconds(f, MEG_CRITICAL_WORK));
    meg_record_real(r, "critical_message_seconds", meg_path_seconds(f, MEG_CRITICAL_MESSAGE));
    meg_record_real(r, "critical_sum_seconds", meg_path_seconds(f, MEG_CRITICAL_SUM));
}

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
    meg_record_text(&r, "kernels", kernels_of(s).isa);
    if (s->forecast.chosen) meg_record_text(&r, "chosen", s->forecast.chosen);
    record_path(s, &r);
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

static void print_path(const meg_session *s)
{
    const char *line = meg_picture_path(s);
    if (*line && meg_session_speaks(s)) printf("  %s\n", line);
}

/* What a page or a trace shows is known to the rank that planned. */
static meg_status draw(meg_session *s, meg_picture *picture, const char *trace)
{
    meg_status status = MEG_OK;
    if (*trace) status = meg_session_agree(s, meg_picture_foresee(s));
    if (*trace && status == MEG_OK && meg_session_speaks(s)) status = meg_trace_foretell(s, trace);
    MEG_TRY(s->error, meg_session_agree(s, status));
    return meg_picture_end(picture, 0);
}

static meg_status print_plan(meg_session *s, const settings *o)
{
    meg_picture picture;
    MEG_TRY(s->error, meg_picture_begin(&picture, s, o->report));
    MEG_TRY(s->error, meg_session_agree(s, meg_writable(s->error, o->trace)));
    s->ctx->foresees = true;
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
    if (!o->json && meg_session_speaks(s)) MEG_TRY(s->error, tell_machine(s, stdout));
    if (!o->json) print_path(s);
    return draw(s, &picture, o->trace);
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
    {"report", MEG_PARAM_TEXT, offsetof(settings, report), "",
     "HTML file with pictures: timelines, memory, alternatives, critical path", NULL, 0, 0},
    {"trace", MEG_PARAM_TEXT, offsetof(settings, trace), "",
     "file for a trace of all kernels and messages as predicted (ui.perfetto.dev)", NULL, 0, 0},
    {"json", MEG_PARAM_BOOL, offsetof(settings, json), "no", "one JSON object", NULL, 0, 0},
    {0},
};

static bool tells_all(const void *state)
{
    const meg_arguments *a = state;
    const settings *o = a->settings;
    return o->ranks > 0 || meg_arguments_has(a, MEG_TO_CONTEXT, "machine");
}

static bool prints_lines(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return !o->alternatives || !o->json;
}

static const meg_rule RULES[] = {
    {"alternatives", "no", tells_all, MEG_WARNS,
     "has no effect: nothing is chosen for the ranks that are there; give --ranks or --machine"},
    {"alternatives", "no", prints_lines, MEG_WARNS,
     "has no effect with --json, which has figures alone: leave one of them out"},
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
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
