/* `megalith explain MODEL`: the program of a plan, one instruction a line, its messages, and where its
 * memory goes: what is alive at the instruction where most is.
 */
#include "cli/session.h"
#include "graph/groups.h"
#include "plan/program/walk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *data;
    int64_t ranks, rank;
    int entry;
    bool slots, json;
} settings;

typedef struct peak { /* of a frame */
    int at;           /* instruction */
    int64_t bytes;    /* alive there: no placement can do with less */
} peak;

/* ---- memory ---- */

static bool in_frame(const meg_slot *s)
{
    return s->region >= MEG_FRAME && s->born >= 0;
}

static peak find_peak(const meg_station *e)
{
    int64_t *change = calloc((size_t)e->instrs + 2, sizeof *change), alive = 0;
    peak p = {0, 0};
    if (!change) abort();
    for (int i = 0; i < e->slots; i++) {
        if (!in_frame(&e->slot[i])) continue;
        change[e->slot[i].born] += e->slot[i].bytes;
        change[e->slot[i].dies + 1] -= e->slot[i].bytes;
    }
    for (int i = 0; i < e->instrs; i++) {
        alive += change[i];
        if (alive > p.bytes) p = (peak){i, alive};
    }
    free(change);
    return p;
}

static int larger(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static const char *name_of(const meg_station *e, const meg_slot *s)
{
    if (s->value < 0) return "";
    bool node = s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH;
    const meg_graph *g = e->entry->graph;
    return node ? g->node[s->value].name : g->value[s->value].name;
}

static void print_alive(const meg_station *e, const peak *p)
{
    static const char *const role[] = {[MEG_ROLE_VALUE] = "value",
                                       [MEG_ROLE_GRADIENT] = "gradient",
                                       [MEG_ROLE_AUX] = "aux",
                                       [MEG_ROLE_SCRATCH] = "scratch",
                                       [MEG_ROLE_STATE] = "state",
                                       [MEG_ROLE_SCALARS] = "",
                                       [MEG_ROLE_SEED] = "seed",
                                       [MEG_ROLE_TOTAL] = "sum",
                                       [MEG_ROLE_BUCKET] = "bucket",
                                       [MEG_ROLE_OUTPUT] = "output",
                                       [MEG_ROLE_INPUT_GRADIENT] = "input gradient"};
    const meg_slot **live = calloc((size_t)e->slots + 1, sizeof *live);
    size_t count = 0;
    if (!live) abort();
    for (int i = 0; i < e->slots; i++) {
        const meg_slot *s = &e->slot[i];
        if (in_frame(s) && s->born <= p->at && p->at <= s->dies) live[count++] = s;
    }
    qsort(live, count, sizeof *live, larger);
    int64_t rest = p->bytes;
    for (size_t i = 0; i < count; i++) {
        const meg_slot *s = live[i];
        if (1000 * s->bytes < p->bytes) {
            printf("  %14" PRId64 " bytes  %5.1f %%  %zu smaller ones\n", rest,
                   100 * (double)rest / (double)p->bytes, count - i);
            break;
        }
        rest -= s->bytes;
        printf("  %14" PRId64 " bytes  %5.1f %%  %-8s %s.%d, alive %d-%d\n", s->bytes,
               100 * (double)s->bytes / (double)p->bytes, role[s->role], name_of(e, s),
               (int)(s - e->slot), s->born, s->dies);
    }
    free(live);
}

/* The blocks that backward runs forward again: the first and last of each rerun. */
static void print_reruns(const meg_station *t, int level)
{
    meg_groups *groups = meg_groups_new(t->entry->graph, (meg_level)level);
    puts("blocks that are run again in backward:");
    for (int i = 0, end; i < groups->count; i = end) {
        const meg_group *first = &groups->group[i];
        int rerun = t->again[first->node[0]];
        end = i + 1;
        while (end < groups->count && t->again[groups->group[end].node[0]] == rerun)
            end++;
        if (rerun < 0) continue;
        printf("  %s%s%s\n", first->name, end > i + 1 ? " .. " : "",
               end > i + 1 ? groups->group[end - 1].name : "");
    }
    meg_groups_free(groups);
}

static void print_regions(const meg_plan *p, const meg_entry *e)
{
    static const char *const what[] = {"held: weights, states, optimizer", "step: labels, sums",
                                       "frames of micro-batches", "temporary"};
    printf("memory of %s:\n", e->name);
    for (int r = 0; r < MEG_REGIONS; r++)
        printf("  %14" PRId64 " bytes  %s\n", r == MEG_HELD ? p->bytes[r] : e->bytes[r], what[r]);
    printf("  %14" PRId64 " bytes  the arena, as large as the largest entry needs\n", p->arena);
}

static void print_station(const meg_station *e)
{
    peak top = find_peak(e);
    const meg_instr *i = &e->instr[top.at];
    int64_t placed = e->frame + e->temporary;
    printf("peak of one micro-batch%s: %" PRId64 " bytes as placed, %" PRId64
           " bytes alive at once (the lower bound), %.2f %% more\n",
           e->entry->stations > 1 ? " in this stage" : "", placed, top.bytes,
           top.bytes ? 100 * ((double)placed / (double)top.bytes - 1) : 0);
    printf("at instruction %d (%s), where these are alive:\n", top.at,
           i->node >= 0 ? e->entry->graph->node[i->node].name : "no node");
    print_alive(e, &top);
}

static void print_messages(const meg_plan *p, const meg_entry *e)
{
    meg_messages m = meg_entry_messages(e);
    if (p->world.ranks == 1) return;
    printf("messages of a step: rank %d sends %" PRId64 " of %" PRId64
           " bytes, and takes part in %" PRId64 " sums of %" PRId64 " bytes\n",
           p->world.rank, m.sent, m.bytes, m.sums, m.sum_bytes);
}

static void print_memory(const meg_plan *p, const meg_entry *e)
{
    print_regions(p, e);
    for (int i = 0; i < e->stations; i++) {
        print_station(&e->station[i]);
        if (e->station[i].again) print_reruns(&e->station[i], p->options.level);
    }
}

/* ---- the command ---- */

static void print_json(const meg_session *s, const meg_entry *e)
{
    const meg_station *t = &e->station[0];
    peak top = find_peak(t);
    meg_record r = {0};
    meg_session_record(s, &r);
    meg_record_text(&r, "entry", e->name);
    meg_record_int(&r, "instructions", t->instrs);
    meg_record_int(&r, "slots", t->slots);
    meg_record_int(&r, "frame_bytes", e->bytes[MEG_FRAME]);
    meg_record_int(&r, "frame_lower_bound_bytes", top.bytes);
    meg_record_int(&r, "peak_instruction", top.at);
    meg_messages m = meg_entry_messages(e);
    meg_record_int(&r, "messages", m.sent);
    meg_record_int(&r, "message_bytes", m.bytes);
    meg_record_int(&r, "sums", m.sums);
    meg_record_int(&r, "sum_bytes", m.sum_bytes);
    meg_record_end(&r);
}

static meg_status explain(meg_session *s, const settings *o)
{
    if (o->data[0]) MEG_TRY(s->error, meg_session_data(s, o->data, &s->data));
    MEG_TRY(s->error, meg_session_graph(s));
    MEG_CHECK(s->error, o->rank < (o->ranks ? o->ranks : 1), MEG_EARG,
              "rank=%" PRId64 " of ranks=%" PRId64 ": use 0..%" PRId64, o->rank,
              o->ranks ? o->ranks : 1, o->ranks ? o->ranks - 1 : 0);
    meg_world world = {(int)o->rank, (int)o->ranks};
    if (o->ranks) MEG_TRY(s->error, meg_session_plan_for(s, &world));
    else MEG_TRY(s->error, meg_session_plan(s, ""));
    const meg_entry *e = &s->plan->entry[o->entry];
    MEG_CHECK(s->error, e->batch, MEG_EARG,
              "this plan has no last, partial batch: give --data whose count is no multiple of "
              "batch=%" PRId64,
              s->plan->options.batch);
    if (o->json) {
        print_json(s, e);
        return MEG_OK;
    }
    meg_entry_print(e, o->slots, stdout);
    print_messages(s->plan, e);
    print_memory(s->plan, e);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) status = explain(&s, a->settings);
    meg_session_close(&s);
    return status;
}

#define AT(field) offsetof(settings, field)

static const meg_param PARAMS[] = {
    {"entry", MEG_PARAM_CHOICE, AT(entry), "train", "which program; tail: the last, partial batch",
     "train|tail|eval", 0, 0},
    {"slots", MEG_PARAM_BOOL, AT(slots), "no", "with times, implementations and all slots", NULL, 0,
     0},
    {"data", MEG_PARAM_STRING, AT(data), "",
     "data set that would be trained on: READER:WORDS; decides image, classes, last batch", NULL, 0,
     0},
    {"ranks", MEG_PARAM_INT, AT(ranks), "0",
     "as it would be on so many ranks, without starting them", NULL, 0, 1 << 20},
    {"rank", MEG_PARAM_INT, AT(rank), "0", "of these, the one to explain", NULL, 0, 1 << 20},
    {"json", MEG_PARAM_BOOL, AT(json), "no", "only figures, as one JSON object", NULL, 0, 0},
    {0},
};

static bool prints_program(const void *state)
{
    const settings *o = ((const meg_arguments *)state)->settings;
    return !o->slots || !o->json;
}

static const meg_rule RULES[] = {
    {"slots", NULL, prints_program, MEG_WARNS,
     "has no effect with --json, which has figures alone: leave one of them out"},
    {0},
};

const meg_command meg_command_explain = {
    .name = "explain",
    .usage = "MODEL [--entry train|tail|eval] [--slots] [--ranks N --rank R] [--word value ...]",
    .doc = "prints the program of a plan and what its memory is used for",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_MODEL,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .run = run,
};
