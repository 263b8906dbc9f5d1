/* Checking and printing programs: see program.h. */
#include "plan/program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *meg_block_name(meg_block_kind b)
{
    static const char *const name[MEG_BLOCKS] = {"begin", "labels", "forward", "backward",
                                                 "update"};
    return name[b];
}

void meg_entry_clear(meg_entry *e)
{
    meg_graph_destroy(e->graph);
    free(e->slot);
    free(e->instr);
    free(e->line);
    free(e->format);
    memset(e, 0, sizeof *e);
}

static const char *code_name(meg_code c)
{
    static const char *const name[MEG_CODES] = {"load", "kernel", "copy", "add",
                                                "zero", "update", "free"};
    return name[c];
}

meg_dtype meg_entry_dtype(const meg_entry *e, meg_dtype t)
{
    return t == MEG_F32 ? e->real : t;
}

/* ---- requests ---- */

/* A value or its gradient: they have one format. */
static void operand(const meg_entry *e, meg_request *r, int o, int value)
{
    r->box[o] = e->graph->value[value].shape;
    r->dtype[o] = meg_entry_dtype(e, e->graph->value[value].dtype);
    r->format[o] = e->format[value];
}

static void kernel_operands(const meg_entry *e, const meg_node *v, meg_request *r)
{
    for (int k = 0; k < v->inputs; k++) {
        operand(e, r, MEG_X + k, v->in[k]);
        operand(e, r, MEG_DX + k, v->in[k]);
    }
    for (int k = 0; k < v->outputs; k++) {
        operand(e, r, MEG_Y + k, v->out[k]);
        operand(e, r, MEG_DY + k, v->out[k]);
    }
    for (int k = 0; k < v->op->auxes; k++) {
        int o = MEG_AUX + k;
        v->op->aux(e->graph, v, &r->work, k, &r->box[o], &r->dtype[o]);
        r->dtype[o] = meg_entry_dtype(e, r->dtype[o]);
    }
}

void meg_entry_request(const meg_entry *e, const meg_instr *i, meg_request *r)
{
    const meg_node *v = i->node >= 0 ? &e->graph->node[i->node] : NULL;
    *r = (meg_request){.code = i->code, .graph = e->graph, .node = v, .pass = i->pass};
    bool kernel = i->code == MEG_KERNEL;
    if (kernel) {
        r->work = meg_op_whole(e->graph, v);
        kernel_operands(e, v, r);
    }
    for (int o = 0; o < MEG_OPERANDS; o++) {
        bool aux = o >= MEG_AUX && o < MEG_AUX + MEG_AUXES;
        if (i->slot[o] < 0 || (kernel && !aux)) continue;
        const meg_slot *s = &e->slot[i->slot[o]];
        r->box[o] = s->box;
        r->dtype[o] = s->dtype;
        r->format[o] = s->format;
        r->bytes[o] = s->bytes;
    }
}

/* ---- check ---- */

typedef struct checker {
    const meg_entry *e;
    meg_error *error;
    char *state; /* of each slot: 0 unwritten, 1 written, 2 freed */
} checker;

static meg_status check_operand(const checker *c, int at, int o)
{
    const meg_instr *i = &c->e->instr[at];
    int s = i->slot[o];
    const meg_slot *t = &c->e->slot[s];
    bool writes = i->written & MEG_BIT(o), first = c->state[s] == 0 && t->region != MEG_HELD;
    MEG_CHECK(c->error, c->state[s] != 2, MEG_EARG, "program %s: %d uses slot %d after its free",
              c->e->name, at, s);
    MEG_CHECK(c->error, writes || !first, MEG_EARG,
              "program %s: %d reads slot %d before it is written", c->e->name, at, s);
    return MEG_OK;
}

static meg_status check_instr(const checker *c, int at)
{
    const meg_instr *i = &c->e->instr[at];
    if (i->code == MEG_FREE) {
        int s = i->slot[MEG_X];
        MEG_CHECK(c->error, c->state[s] == 1 && c->e->slot[s].region == MEG_FRAME, MEG_EARG,
                  "program %s: %d frees slot %d, which is not in use", c->e->name, at, s);
        c->state[s] = 2;
        return MEG_OK;
    }
    for (int o = 0; o < MEG_OPERANDS; o++)
        if (i->slot[o] >= 0) MEG_TRY(c->error, check_operand(c, at, o));
    for (int o = 0; o < MEG_OPERANDS; o++)
        if (i->slot[o] >= 0 && i->written & MEG_BIT(o)) c->state[i->slot[o]] = 1;
    return MEG_OK;
}

static int by_birth(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    return x->born != y->born ? (x->born < y->born ? -1 : 1) : (x < y ? -1 : x > y);
}

/* Slots in the order of their birth against those still alive: no two may share a byte. */
static meg_status check_overlap(const checker *c)
{
    const meg_entry *e = c->e;
    size_t room = (size_t)e->slots + 1;
    const meg_slot **order = calloc(room, sizeof *order), **live = calloc(room, sizeof *live);
    if (!order || !live) abort();
    int count = 0, alive = 0;
    meg_status status = MEG_OK;
    for (int i = 0; i < e->slots; i++)
        if (e->slot[i].region == MEG_FRAME && e->slot[i].born >= 0) order[count++] = &e->slot[i];
    qsort(order, (size_t)count, sizeof *order, by_birth);
    for (int i = 0; i < count && status == MEG_OK; i++) {
        const meg_slot *s = order[i];
        int kept = 0;
        for (int k = 0; k < alive; k++) {
            if (live[k]->dies < s->born) continue;
            live[kept++] = live[k];
            if (live[k]->offset < s->offset + s->bytes && s->offset < live[k]->offset + live[k]->bytes)
                status = meg_fail(c->error, MEG_EARG, "program %s: slots %d and %d overlap",
                                  e->name, (int)(s - e->slot), (int)(live[k] - e->slot));
        }
        alive = kept;
        live[alive++] = s;
        if (s->offset < 0 || s->offset + s->bytes > e->bytes[MEG_FRAME])
            status = meg_fail(c->error, MEG_EARG, "program %s: slot %d lies outside its frame",
                              e->name, (int)(s - e->slot));
    }
    free(order);
    free(live);
    return status;
}

static meg_status check_all(const checker *c)
{
    for (int i = 0; i < c->e->instrs; i++)
        MEG_TRY(c->error, check_instr(c, i));
    for (int s = 0; s < c->e->slots; s++) {
        bool used = c->e->slot[s].region == MEG_FRAME && c->state[s] != 0;
        MEG_CHECK(c->error, !used || c->state[s] == 2, MEG_EARG,
                  "program %s: slot %d is never freed", c->e->name, s);
    }
    return check_overlap(c);
}

meg_status meg_entry_check(const meg_entry *e, meg_error *error)
{
    checker c = {e, error, calloc((size_t)e->slots + 1, 1)};
    if (!c.state) abort();
    meg_status status = check_all(&c);
    free(c.state);
    return status;
}

/* ---- print ---- */

static void print_slot(const meg_entry *e, int id, FILE *out)
{
    const meg_slot *s = &e->slot[id];
    const char *name = "";
    if (s->role == MEG_ROLE_SCALARS) name = "scalars";
    else if (s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH)
        name = s->value >= 0 ? e->graph->node[s->value].name : "";
    else name = e->graph->value[s->value].name;
    static const char *const mark[] = {
        [MEG_ROLE_VALUE] = "", [MEG_ROLE_GRADIENT] = "d:", [MEG_ROLE_AUX] = "aux:",
        [MEG_ROLE_SCRATCH] = "scratch:", [MEG_ROLE_STATE] = "opt:", [MEG_ROLE_SCALARS] = "",
        [MEG_ROLE_SEED] = "seed:", [MEG_ROLE_TOTAL] = "sum:"};
    fprintf(out, " %s%s.%d", mark[s->role], name, id);
    if (s->format != MEG_FORMAT_PLAIN) fprintf(out, "/%s", meg_format_name(s->format));
}

static void print_side(const meg_entry *e, const meg_instr *i, bool written, FILE *out)
{
    for (int o = 0; o < MEG_OPERANDS; o++) {
        bool w = i->written & MEG_BIT(o);
        bool both = i->code == MEG_UPDATE || i->pass == MEG_STATE_PASS;
        if (i->slot[o] >= 0 && (w == written || (w && !written && both)))
            print_slot(e, i->slot[o], out);
    }
}

static void print_instr(const meg_entry *e, int at, bool figures, FILE *out)
{
    const meg_instr *i = &e->instr[at];
    fprintf(out, "  %5d %-6s", at, i->code == MEG_KERNEL ? meg_pass_name(i->pass)
                                                         : code_name(i->code));
    if (i->code == MEG_KERNEL)
        fprintf(out, " %s %s", e->graph->node[i->node].op->name, e->graph->node[i->node].name);
    if (i->code != MEG_FREE) {
        fputs(" :", out);
        print_side(e, i, true, out);
        fputs(" <-", out);
    }
    print_side(e, i, false, out);
    if (figures && i->code != MEG_FREE && i->code != MEG_LOAD)
        fprintf(out, "   %.0f us %s", 1e6 * i->seconds, i->impl);
    fputc('\n', out);
}

static void print_slots(const meg_entry *e, FILE *out)
{
    static const char *const region[] = {"held", "step", "frame"};
    for (int i = 0; i < e->slots; i++) {
        const meg_slot *s = &e->slot[i];
        char box[96];
        meg_box_text(&s->box, box);
        fprintf(out, "  slot %d %s+%" PRId64 " %" PRId64 " bytes %s %s %s", i, region[s->region],
                s->offset, s->bytes, meg_dtype_name(s->dtype), meg_format_name(s->format), box);
        if (s->region == MEG_FRAME) fprintf(out, " alive %d-%d", s->born, s->dies);
        fputc('\n', out);
    }
}

void meg_entry_print(const meg_entry *e, bool figures, FILE *out)
{
    fprintf(out, "entry %s: batch %" PRId64 ", %d micro-batch%s\n", e->name, e->batch, e->micro,
            e->micro == 1 ? "" : "es");
    for (int i = 0; i < e->lines; i++)
        fprintf(out, "  run %s micro %d\n", meg_block_name(e->line[i].block), e->line[i].micro);
    for (int b = 0; b < MEG_BLOCKS; b++) {
        if (e->block[b].count == 0) continue;
        fprintf(out, " block %s\n", meg_block_name((meg_block_kind)b));
        for (int i = 0; i < e->block[b].count; i++)
            print_instr(e, e->block[b].first + i, figures, out);
    }
    if (figures) print_slots(e, out);
}
