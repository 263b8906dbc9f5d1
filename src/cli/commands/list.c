/* `megalith list [REGISTRY [NAME]]`: what there is to choose from, out of the registries. */
#include "base/nearest.h"
#include "cli/command.h"
#include "comm/allreduce/allreduce.h"
#include "data/data.h"
#include "device/device.h"
#include "import/onnx/onnx.h"
#include "plan/named.h"
#include "plan/schedule/schedule.h"
#include "zoo/zoo.h"

#include <string.h>

typedef struct thing { /* an entry of any registry */
    const char *name, *doc, *paper;
    const meg_param *params;
    const meg_op *op;   /* NULL: is none */
    const meg_row *row; /* the same */
    const meg_named_plan *plan;
    double lr; /* of an optimizer; else 0 */
} thing;

typedef struct registry {
    const char *name, *doc;
    bool (*at)(int i, thing *out); /* false past the end */
} registry;

/* ---- the registries ---- */

static bool op_at(int i, thing *out)
{
    const meg_op *o = meg_op_at(i);
    if (o) *out = (thing){o->name, o->doc, o->paper, o->params, o, NULL, NULL, 0};
    return o != NULL;
}

static bool device_at(int i, thing *out)
{
    const meg_device_kind *d = meg_device_kind_at(i);
    if (d) *out = (thing){.name = d->name, .doc = d->doc};
    return d != NULL;
}

static bool reader_at(int i, thing *out)
{
    const meg_reader *r = meg_reader_at(i);
    if (r) *out = (thing){.name = r->name, .doc = r->doc, .params = r->params};
    return r != NULL;
}

static bool optimizer_at(int i, thing *out)
{
    const meg_optimizer *o = meg_optimizer_at(i);
    if (o)
        *out = (thing){
            .name = o->name, .doc = o->doc, .paper = o->paper, .params = o->params, .lr = o->lr};
    return o != NULL;
}

static bool model_at(int i, thing *out)
{
    const meg_model *m = meg_zoo_at(i);
    if (m) *out = (thing){m->name, m->doc, m->paper, m->params, NULL, NULL, NULL, 0};
    return m != NULL;
}

static bool schedule_at(int i, thing *out)
{
    const meg_row *r = meg_row_at(i);
    if (r) *out = (thing){.name = r->name, .doc = r->doc, .paper = r->paper, .row = r};
    return r != NULL;
}

static bool allreduce_at(int i, thing *out)
{
    const meg_allreduce_kind *k = meg_allreduce_at(i);
    if (k) *out = (thing){.name = k->name, .doc = k->doc, .paper = k->paper};
    return k != NULL;
}

static bool plan_at(int i, thing *out)
{
    const meg_named_plan *p = meg_named_plan_at(i);
    if (p) *out = (thing){.name = p->name, .doc = p->doc, .paper = p->paper, .plan = p};
    return p != NULL;
}

static bool onnx_at(int i, thing *out)
{
    const char *name = meg_onnx_operator(i);
    if (name) *out = (thing){.name = name, .doc = meg_onnx_claim(name)};
    return name != NULL;
}

static const registry REGISTRIES[] = {
    {"models", "networks, by name", model_at},
    {"ops", "operators that networks are made of", op_at},
    {"optimizers", "how weights change", optimizer_at},
    {"readers", "where data comes from: --data READER:WORDS", reader_at},
    {"devices", "who computes", device_at},
    {"allreduce", "how ranks sum their gradients", allreduce_at},
    {"schedules", "how a pipeline of stages takes its micro-batches", schedule_at},
    {"plans", "published shapes: --plan NAME, on as many ranks or a multiple of them", plan_at},
    {"onnx", "operators of ONNX files that can be read (docs/onnx.md)", onnx_at},
};
enum {
    COUNT = sizeof REGISTRIES / sizeof *REGISTRIES
};

/* ---- printing ---- */

static void print_names(const registry *r)
{
    thing t;
    printf("%s: %s\n", r->name, r->doc);
    for (int i = 0; r->at(i, &t); i++)
        printf("  %-14s %s\n", t.name, t.doc ? t.doc : "");
}

static void print_thing(const thing *t)
{
    printf("%s: %s\n", t->name, t->doc ? t->doc : "");
    meg_options_help(t->params, stdout);
    if (t->lr > 0) printf("  lr: %g, unless given\n", t->lr);
    if (t->plan) printf("  words: %s\n  ranks: %d\n", t->plan->words, t->plan->ranks);
    if (t->paper) printf("  paper: %s\n", t->paper);
}

/* Which passes it has kernels for, and the cases that every device is tested with. */
static void print_op(const meg_op *op)
{
    if (op->onnx) printf("  ONNX: %s\n", op->onnx);
    printf("  inputs: %d", op->data_inputs);
    if (op->data_inputs_max > op->data_inputs) printf(" to %d", op->data_inputs_max);
    printf("%s\n  passes:", op->weights ? ", and its weights" : "");
    for (int p = 0; p < MEG_PASSES; p++)
        if (op->f32 && op->f32->run[p]) printf(" %s", meg_pass_name((meg_pass)p));
    puts("\n  samples (shapes of the inputs, words):");
    for (const meg_sample *s = op->samples; s && s->shapes; s++)
        printf("    %-24s %s\n", s->shapes, s->attrs ? s->attrs : "");
}

/* Its picture, for four ranks and the fewest micro-batches that fill them. */
static meg_status print_schedule(const meg_row *row, meg_error *e)
{
    meg_pool *pool = meg_pool_new();
    meg_timetable *t = NULL;
    meg_pipe p = {.stages = 4, .ranks = 4, .micro = 4};
    if (meg_row_check(e, row, &p) != MEG_OK) p.stages = 8; /* two stages a rank */
    meg_error_clear(e);
    meg_status status = meg_timetable_draw(e, pool, row, &p, &t);
    if (status == MEG_OK) meg_timetable_print(t, stdout);
    meg_pool_free(pool);
    return status;
}

/* ---- the command ---- */

static const registry *find_registry(const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (strcmp(REGISTRIES[i].name, name) == 0) return &REGISTRIES[i];
    return NULL;
}

static meg_status print_one(const registry *r, const char *name, meg_error *e)
{
    thing t;
    for (int i = 0; r->at(i, &t); i++) {
        if (strcmp(t.name, name) != 0) continue;
        print_thing(&t);
        if (t.op) print_op(t.op);
        return t.row ? print_schedule(t.row, e) : MEG_OK;
    }
    meg_nearest n = meg_nearest_to(name);
    char hint[MEG_HINT];
    for (int i = 0; r->at(i, &t); i++)
        meg_nearest_try(&n, t.name);
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "there is no '%s' among the %s%s: `megalith list %s` prints them",
                    name, r->name, hint, r->name);
}

static const char *registry_name(int i)
{
    return i < COUNT ? REGISTRIES[i].name : NULL;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    thing t;
    for (int i = 0; i < COUNT && a->places == 0; i++)
        print_names(&REGISTRIES[i]);
    if (a->places == 0) return MEG_OK;
    const registry *r = find_registry(a->place[0]);
    if (!r) return meg_unknown(e, "nothing is listed under", a->place[0], registry_name);
    if (a->places == 2) return print_one(r, a->place[1], e);
    for (int i = 0; r->at(i, &t); i++)
        print_thing(&t);
    return MEG_OK;
}

const meg_command meg_command_list = {
    .name = "list",
    .usage = "[models|ops|optimizers|readers|devices|schedules|allreduce|plans|onnx [NAME]]",
    .doc = "lists what there is to choose from, with words and papers",
    .places_max = 2,
    .run = run,
};
