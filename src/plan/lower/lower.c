/* Lowering an entry: its stations, and the lines that run them. See lowering.h for the parts. */
#include "plan/lower/lower.h"
#include "comm/allreduce/allreduce.h"
#include "machine/prices.h"
#include "plan/lower/lowering.h"
#include "plan/program/walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

static void add_line(meg_entry *e, meg_line line)
{
    const meg_station *t = &e->station[line.station];
    if (t->block[line.block].count == 0) return;
    e->line = meg_grow(e->line, &e->line_room, (size_t)e->lines + 1, sizeof *e->line);
    e->line[e->lines++] = line;
}

static void for_all_stations(meg_entry *e, meg_block_kind block)
{
    for (int i = 0; i < e->stations; i++)
        add_line(e, (meg_line){.station = i, .block = block, .last = true});
}

static int ordinal_of(const meg_timetable *t, int micro)
{
    int count = 0;
    for (int m = 0; m < micro; m++)
        count += t->direction[m] == t->direction[micro];
    return count;
}

static void label_lines(meg_entry *e)
{
    const meg_timetable *t = e->timetable;
    for (int i = 0; i < e->stations; i++)
        for (int m = 0; m < t->micro; m++)
            if (t->direction[m] == e->station[i].direction)
                add_line(e, (meg_line){.station = i,
                                       .block = MEG_BLOCK_LABELS,
                                       .micro = m,
                                       .ordinal = ordinal_of(t, m)});
}

/* -1: the rank's track has it, but the rank is not on the stage's mesh. */
static int station_of(const meg_entry *e, const meg_task *k)
{
    for (int i = 0; i < e->stations; i++)
        if (e->station[i].stage == k->stage && e->station[i].direction == k->direction) return i;
    return -1;
}

/* Marks the last line of every station's blocks. */
static void mark_last(meg_entry *e)
{
    for (int i = e->lines - 1; i >= 0; i--) {
        bool again = false;
        for (int k = i + 1; k < e->lines && !again; k++)
            again = e->line[k].station == e->line[i].station &&
                    e->line[k].block == e->line[i].block;
        e->line[i].last = !again;
    }
}

static void link_frames(meg_entry *e)
{
    for (int i = 0; i < e->lines; i++)
        e->line[i].first = true;
    for (int i = 0; i < e->lines; i++) {
        meg_line *line = &e->line[i];
        int k = i + 1;
        while (k < e->lines &&
               (e->line[k].station != line->station || e->line[k].frame != line->frame))
            k++;
        line->next = k < e->lines ? k : -1;
        if (line->next >= 0) e->line[line->next].first = false;
    }
}

/*   begin  labels  counted  (tasks of the timetable)  tied  update   */
static void write_lines(const meg_plan *p, meg_entry *e)
{
    static const meg_block_kind block[] = {[MEG_TASK_F] = MEG_BLOCK_FORWARD,
                                           [MEG_TASK_B] = MEG_BLOCK_BACKWARD,
                                           [MEG_TASK_BI] = MEG_BLOCK_BACKWARD,
                                           [MEG_TASK_BW] = MEG_BLOCK_WEIGHTS};
    const meg_timetable *t = e->timetable;
    e->lines = 0;
    for_all_stations(e, MEG_BLOCK_BEGIN);
    label_lines(e);
    for_all_stations(e, MEG_BLOCK_COUNTED);
    for (int i = t->first[p->track]; i < t->first[p->track + 1]; i++) {
        const meg_task *k = &t->task[i];
        int station = station_of(e, k);
        if (station < 0 || (!e->train && k->kind != MEG_TASK_F)) continue;
        add_line(e, (meg_line){.station = station,
                               .block = block[k->kind],
                               .micro = k->micro,
                               .ordinal = ordinal_of(t, k->micro),
                               .frame = e->train ? k->frame : 0});
    }
    for_all_stations(e, MEG_BLOCK_TIED);
    for_all_stations(e, MEG_BLOCK_UPDATE);
    mark_last(e);
    link_frames(e);
    e->seconds = meg_entry_seconds(e) + meg_prices_step(p->profile.prices);
}

/* ---- the entry ---- */

/* Kernels for other parts may want weights in other formats, but ranks that share weights sum
 * gradients as they lie: all lay them out as the rank with the largest part does. */
static void lay_out(meg_plan *p, meg_entry *e)
{
    if (p->world.ranks > 1)
        meg_lower_stations(p, e, p->world.rank, &(meg_variant){.foreign = true});
}

/* How many there are on this machine, the engine asks. */
static meg_status check_tags(const meg_station *t, meg_error *e)
{
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *in = &t->instr[i];
        bool message = in->code == MEG_SEND || in->code == MEG_RECV;
        MEG_CHECK(e, !message || in->tag >= 0, MEG_EUNSUPPORTED,
                  "%s: too many messages between stages with micro=%d: use fewer micro-batches",
                  t->entry->name, t->entry->micro);
    }
    return MEG_OK;
}

/* Whoever computes a loss outside wants all outputs before it gives a gradient. */
static meg_status check_order(const meg_entry *entry, meg_error *e)
{
    bool back = false;
    for (int i = 0; i < entry->lines && entry->train && meg_graph_late(entry->graph); i++) {
        bool forward = entry->line[i].block == MEG_BLOCK_FORWARD;
        back = back || entry->line[i].block > MEG_BLOCK_FORWARD;
        MEG_CHECK(e, !forward || !back, MEG_EUNSUPPORTED,
                  "schedule=%s goes back before all micro-batches have gone forward, but a loss "
                  "outside needs all outputs first: use schedule=gpipe, or micro=1",
                  entry->timetable->schedule);
    }
    return MEG_OK;
}

/* A library's own reduction takes all ranks; halves (zero=) are never its. */
static meg_status check_sums(const meg_plan *p, const meg_station *t, meg_error *e)
{
    const meg_allreduce_kind *kind = meg_allreduce_find(p->options.allreduce);
    char brief[MEG_BRIEF];
    for (int i = 0; i < t->instrs && !kind->step; i++) {
        const meg_instr *in = &t->instr[i];
        bool sum = in->code == MEG_REDUCE && in->half == MEG_HALF_BOTH;
        MEG_CHECK(e, !sum || t->entry->team[in->peer].count == p->world.ranks, MEG_EARG,
                  "allreduce=%s works on all ranks, but mesh=%s has sums over some of them: use "
                  "allreduce=ring",
                  kind->name, meg_brief(p->options.mesh, brief));
    }
    return MEG_OK;
}

/* The rank whose part it is: an idle one is lowered like one with samples. */
static int rank_of(const meg_plan *p, const meg_entry *e)
{
    int replica = e->idle ? p->replicas - 1 : p->replica;
    return replica * p->each + p->world.rank % p->each;
}

static meg_status finish(meg_plan *p, meg_error *e, meg_entry *out)
{
    for (int i = 0; i < out->stations; i++) {
        MEG_TRY(e, check_tags(&out->station[i], e));
        MEG_TRY(e, check_sums(p, &out->station[i], e));
    }
    int tags = meg_entry_tags(out);
    if (tags > p->tags) p->tags = tags;
    write_lines(p, out);
    MEG_TRY(e, check_order(out, e));
    return meg_entry_check(out, e);
}

/* Evaluation comes last. Where it needs more of a region than training did, training may use that: what
 * is run again is chosen anew. */
static meg_status lower_again(meg_plan *p, meg_error *e, const meg_entry *eval)
{
    bool more = false;
    for (int r = MEG_STEP; r < MEG_REGIONS; r++)
        more = more || eval->bytes[r] > p->bytes[r];
    if (!more) return MEG_OK;
    for (int r = MEG_STEP; r < MEG_REGIONS; r++)
        p->bytes[r] = eval->bytes[r];
    for (int i = MEG_ENTRY_TRAIN; i <= MEG_ENTRY_TRAIN_TAIL; i++) {
        meg_entry *out = &p->entry[i];
        if (out->batch == 0) continue;
        meg_lower_reruns(p, out, rank_of(p, out));
        MEG_TRY(e, finish(p, e, out));
        for (int r = MEG_STEP; r < MEG_REGIONS; r++)
            if (out->bytes[r] > p->bytes[r]) p->bytes[r] = out->bytes[r];
    }
    return MEG_OK;
}

meg_status meg_plan_lower(meg_plan *p, meg_error *e, meg_entry *out)
{
    bool reruns = p->options.recompute == MEG_RECOMPUTE_BLOCKS;
    MEG_CHECK(
        e, !reruns || p->options.zero != MEG_ZERO_ALL, MEG_EUNSUPPORTED,
        "recompute=segments is each rank's own choice, but with zero=3 ranks fetch weights in "
        "one order: use zero=1, or recompute=auto");
    out->real = p->profile.real;
    lay_out(p, out);
    if (reruns && out->train) meg_lower_reruns(p, out, rank_of(p, out));
    else meg_lower_stations(p, out, rank_of(p, out), &(meg_variant){0});
    MEG_TRY(e, finish(p, e, out));
    return reruns && !out->train ? lower_again(p, e, out) : MEG_OK;
}
