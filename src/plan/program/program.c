/* Programs: requests to the device, text. See program.h. */
#include "plan/program/program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int meg_shard_axis(const meg_box *box)
{
    int axis = 0;
    while (axis < MEG_AXES - 1 && meg_extent(box, axis) == 1)
        axis++;
    return axis;
}

const char *meg_block_name(meg_block_kind b)
{
    static const char *const name[MEG_BLOCKS] = {"begin",    "labels",  "counted", "forward",
                                                 "backward", "weights", "tied",    "update"};
    return name[b];
}

static void clear_station(meg_station *t)
{
    free(t->slot);
    free(t->instr);
    free(t->format);
}

void meg_entry_clear_stations(meg_entry *e)
{
    for (int i = 0; i < e->stations; i++)
        clear_station(&e->station[i]);
    free(e->station);
    e->station = NULL;
    e->stations = e->teams = 0;
}

void meg_entry_clear(meg_entry *e)
{
    meg_graph_destroy(e->graph);
    meg_entry_clear_stations(e);
    free(e->line);
    free(e->team);
    free(e->segment_of);
    free(e->stage);
    memset(e, 0, sizeof *e);
}

meg_dtype meg_entry_dtype(const meg_entry *e, meg_dtype t)
{
    return t == MEG_F32 ? e->real : t;
}

/* ---- requests ---- */

/* A value or its gradient: they have one format. */
static void operand(const meg_station *t, meg_request *r, int o, int value)
{
    r->box[o] = t->box[value];
    r->dtype[o] = meg_entry_dtype(t->entry, t->entry->graph->value[value].dtype);
    r->format[o] = t->format[value];
}

static void kernel_operands(const meg_station *t, const meg_node *v, meg_request *r)
{
    for (int k = 0; k < v->inputs; k++) {
        operand(t, r, MEG_X + k, v->in[k]);
        operand(t, r, MEG_DX + k, v->in[k]);
    }
    for (int k = 0; k < v->outputs; k++) {
        operand(t, r, MEG_Y + k, v->out[k]);
        operand(t, r, MEG_DY + k, v->out[k]);
    }
    for (int k = 0; k < v->op->auxes; k++) {
        int o = MEG_AUX + k;
        v->op->aux(t->entry->graph, v, &r->work, k, &r->box[o], &r->dtype[o]);
        r->dtype[o] = meg_entry_dtype(t->entry, r->dtype[o]);
    }
}

void meg_station_request(const meg_station *t, const meg_instr *i, meg_request *r)
{
    const meg_graph *g = t->entry->graph;
    const meg_node *v = i->node >= 0 ? &g->node[i->node] : NULL;
    *r = (meg_request){.code = i->code, .graph = g, .node = v, .pass = i->pass};
    bool kernel = i->code == MEG_KERNEL;
    if (kernel) {
        r->work = t->work[v->id];
        kernel_operands(t, v, r);
    }
    for (int o = 0; o < MEG_OPERANDS; o++) {
        bool aux = o >= MEG_AUX && o < MEG_AUX + MEG_AUXES;
        if (i->slot[o] < 0) continue;
        const meg_slot *s = &t->slot[i->slot[o]];
        r->box[o] = s->box;
        if (kernel && !aux) continue;
        r->dtype[o] = s->dtype;
        r->format[o] = s->format;
        r->bytes[o] = s->bytes;
    }
}

/* ---- print ---- */

static void print_slot(const meg_station *t, int id, FILE *out)
{
    const meg_slot *s = &t->slot[id];
    const meg_graph *g = t->entry->graph;
    const char *name = "";
    if (s->role == MEG_ROLE_SCALARS) name = "scalars";
    else if (s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH)
        name = s->value >= 0 ? g->node[s->value].name : "";
    else if (s->role != MEG_ROLE_BUCKET) name = g->value[s->value].name;
    static const char *const mark[] = {[MEG_ROLE_VALUE] = "",
                                       [MEG_ROLE_GRADIENT] = "d:",
                                       [MEG_ROLE_AUX] = "aux:",
                                       [MEG_ROLE_SCRATCH] = "scratch:",
                                       [MEG_ROLE_STATE] = "opt:",
                                       [MEG_ROLE_SCALARS] = "",
                                       [MEG_ROLE_SEED] = "seed:",
                                       [MEG_ROLE_TOTAL] = "sum:",
                                       [MEG_ROLE_BUCKET] = "bucket",
                                       [MEG_ROLE_OUTPUT] = "out:",
                                       [MEG_ROLE_INPUT_GRADIENT] = "in:"};
    fprintf(out, " %s%s.%d", mark[s->role], name, id);
    if (s->format != MEG_FORMAT_PLAIN) fprintf(out, "/%s", meg_format_name(s->format));
}

static void print_side(const meg_station *t, const meg_instr *i, bool written, FILE *out)
{
    for (int o = 0; o < MEG_OPERANDS; o++) {
        bool w = i->written & MEG_BIT(o);
        bool both = i->code == MEG_UPDATE || i->pass == MEG_STATE_PASS;
        if (i->slot[o] >= 0 && (w == written || (w && !written && both)))
            print_slot(t, i->slot[o], out);
    }
}

static void print_peers(const meg_station *t, const meg_instr *i, FILE *out)
{
    if (i->code == MEG_SEND || i->code == MEG_RECV)
        fprintf(out, " %s rank %d, tag %d", i->code == MEG_SEND ? "to" : "from", i->peer, i->tag);
    if (i->code != MEG_REDUCE) return;
    const meg_team *team = &t->entry->team[i->peer];
    static const char *const half[] = {"sum", "sum of parts", "all parts"};
    fprintf(out, " %s over ranks", i->max ? "largest" : half[i->half]);
    for (int k = 0; k < team->count; k++)
        fprintf(out, "%s%d", k ? "," : " ", team->rank[k]);
    fprintf(out, "%s, tag %d", i->last ? ", last micro-batch" : "", i->tag);
}

static void print_instr(const meg_station *t, int at, bool figures, FILE *out)
{
    const meg_instr *i = &t->instr[at];
    const meg_graph *g = t->entry->graph;
    fprintf(out, "  %5d %-6s", at,
            i->code == MEG_KERNEL ? meg_pass_name(i->pass) : meg_code_name(i->code));
    if (i->code == MEG_KERNEL)
        fprintf(out, " %s %s", g->node[i->node].op->name, g->node[i->node].name);
    if (i->code != MEG_FREE) {
        fputs(" :", out);
        print_side(t, i, true, out);
        fputs(" <-", out);
    }
    print_side(t, i, false, out);
    print_peers(t, i, out);
    if (figures && i->impl[0]) fprintf(out, "   %.0f us %s", 1e6 * i->seconds, i->impl);
    fputc('\n', out);
}

static void print_slots(const meg_station *t, FILE *out)
{
    static const char *const region[] = {"held", "step", "frame", "temporary"};
    for (int i = 0; i < t->slots; i++) {
        const meg_slot *s = &t->slot[i];
        char box[96];
        meg_box_text(&s->box, box);
        fprintf(out, "  slot %d %s+%" PRId64 " %" PRId64 " bytes %s %s %s", i, region[s->region],
                s->offset, s->bytes, meg_dtype_name(s->dtype), meg_format_name(s->format), box);
        if (s->region >= MEG_FRAME) fprintf(out, " alive %d-%d", s->born, s->dies);
        fputc('\n', out);
    }
}

static void print_station(const meg_station *t, bool figures, FILE *out)
{
    if (t->entry->stations > 1 || t->stage > 0)
        fprintf(out, " stage %d%s, %d frame%s\n", t->stage, t->direction ? ", inverted" : "",
                t->frames, t->frames == 1 ? "" : "s");
    for (int b = 0; b < MEG_BLOCKS; b++) {
        if (t->block[b].count == 0) continue;
        fprintf(out, " block %s\n", meg_block_name((meg_block_kind)b));
        for (int i = 0; i < t->block[b].count; i++)
            print_instr(t, t->block[b].first + i, figures, out);
    }
    if (figures) print_slots(t, out);
}

void meg_entry_print(const meg_entry *e, bool figures, FILE *out)
{
    bool many = e->stations > 1;
    fprintf(out, "entry %s: batch %" PRId64 ", %d micro-batch%s\n", e->name, e->batch, e->micro,
            e->micro == 1 ? "" : "es");
    for (int i = 0; i < e->lines; i++) {
        const meg_line *l = &e->line[i];
        const meg_station *t = &e->station[l->station];
        fprintf(out, "  run %s", meg_block_name(l->block));
        if (many) fprintf(out, " of stage %d%s", t->stage, t->direction ? ", inverted," : "");
        fprintf(out, " micro %d", l->micro);
        if (t->frames > 1) fprintf(out, " frame %d", l->frame);
        fputc('\n', out);
    }
    for (int i = 0; i < e->stations; i++)
        print_station(&e->station[i], figures, out);
}
