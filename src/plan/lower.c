/* Lowering an entry: analysis, blocks, lifetimes, offsets. See lower.h for the parts. */
#include "plan/lower.h"

#include <stdlib.h>
#include <string.h>

static void prepare(meg_lower *l)
{
    size_t values = (size_t)l->g->values + 1, nodes = (size_t)l->g->nodes + 1;
    l->grad = meg_pool_alloc(l->pool, values);
    l->keep = meg_pool_alloc(l->pool, values);
    l->replay = meg_pool_alloc(l->pool, values);
    l->active = meg_pool_alloc(l->pool, nodes);
    l->uses = meg_pool_alloc(l->pool, values * sizeof(int));
    l->owed = meg_pool_alloc(l->pool, values * sizeof(int));
    l->home = meg_pool_alloc(l->pool, values * sizeof(int));
    size_t none = 0;
    l->format = l->out->format = meg_grow(NULL, &none, values, sizeof(meg_format));
    l->out->real = l->plan->profile.real;
    l->aux = meg_pool_alloc(l->pool, nodes * MEG_AUXES * sizeof(int));
    l->parts = meg_pool_alloc(l->pool, values * sizeof(meg_parts));
    for (size_t i = 0; i < values; i++)
        l->home[i] = -1;
    for (size_t i = 0; i < nodes * MEG_AUXES; i++)
        l->aux[i] = -1;
    for (int i = 0; i < l->g->nodes; i++) /* room for the contributions to come */
        for (int k = 0; k < l->g->node[i].inputs; k++)
            l->parts[l->g->node[i].in[k]].count++;
    for (size_t i = 0; i < values; i++) {
        l->parts[i].slot = meg_pool_alloc(l->pool, ((size_t)l->parts[i].count + 1) * sizeof(int));
        l->parts[i].count = 0;
    }
}

static void touch(meg_entry *e)
{
    for (int i = 0; i < e->slots; i++)
        e->slot[i].born = e->slot[i].dies = -1;
    for (int i = 0; i < e->instrs; i++)
        for (int o = 0; o < MEG_OPERANDS; o++) {
            int s = e->instr[i].slot[o];
            if (s < 0 || e->instr[i].code == MEG_FREE) continue;
            if (e->slot[s].born < 0) e->slot[s].born = i;
            e->slot[s].dies = i;
        }
}

static void append(meg_entry *e, const meg_instr *i)
{
    e->instr = meg_grow(e->instr, &e->instr_room, (size_t)e->instrs + 1, sizeof *e->instr);
    e->instr[e->instrs++] = *i;
}

/* FREE behind the last use of every frame slot. */
static void append_frees(meg_entry *e, const meg_instr *last, const int dying[], int count)
{
    append(e, last);
    for (int i = 0; i < count; i++) {
        meg_instr f = meg_lower_instr(MEG_FREE, NULL, MEG_FORWARD);
        f.slot[MEG_X] = dying[i];
        append(e, &f);
    }
}

/* The slots of an instruction that die with it, each once. */
static int dying_at(const meg_entry *e, int at, const meg_instr *i, int dying[MEG_OPERANDS])
{
    int count = 0;
    for (int o = 0; o < MEG_OPERANDS; o++) {
        int s = i->slot[o];
        if (s < 0 || e->slot[s].region != MEG_FRAME || e->slot[s].dies != at) continue;
        bool seen = false;
        for (int k = 0; k < count; k++)
            seen = seen || dying[k] == s;
        if (!seen) dying[count++] = s;
    }
    return count;
}

static void join_blocks(meg_lower *l)
{
    meg_entry *e = l->out;
    for (int b = 0; b < MEG_BLOCKS; b++)
        for (int i = 0; i < l->list[b].count; i++)
            append(e, &l->list[b].at[i]);
    touch(e);
    int at = 0, dying[MEG_OPERANDS];
    e->instrs = 0;
    for (int b = 0; b < MEG_BLOCKS; b++) {
        e->block[b].first = e->instrs;
        for (int i = 0; i < l->list[b].count; i++, at++) {
            const meg_instr *in = &l->list[b].at[i];
            append_frees(e, in, dying, dying_at(e, at, in, dying));
        }
        e->block[b].count = e->instrs - e->block[b].first;
    }
    touch(e);
}

static void add_line(meg_entry *e, meg_block_kind block, int micro)
{
    if (e->block[block].count == 0) return;
    e->line = meg_grow(e->line, &e->line_room, (size_t)e->lines + 1, sizeof *e->line);
    e->line[e->lines++] = (meg_line){block, micro};
    for (int i = 0; i < e->block[block].count; i++)
        e->seconds += e->instr[e->block[block].first + i].seconds;
}

/*   begin  labels 0..M-1  (forward m  backward m) for m = 0..M-1  update   */
static void write_lines(meg_entry *e)
{
    e->seconds = 0;
    add_line(e, MEG_BLOCK_BEGIN, 0);
    for (int m = 0; m < e->micro; m++)
        add_line(e, MEG_BLOCK_LABELS, m);
    for (int m = 0; m < e->micro; m++) {
        add_line(e, MEG_BLOCK_FORWARD, m);
        add_line(e, MEG_BLOCK_BACKWARD, m);
    }
    add_line(e, MEG_BLOCK_UPDATE, 0);
}

meg_status meg_plan_lower(meg_plan *p, meg_error *e, meg_entry *out)
{
    meg_lower l = {.plan = p, .out = out, .g = out->graph, .pool = meg_pool_new()};
    prepare(&l);
    if (out->train) meg_lower_keep(&l);
    meg_lower_begin(&l);
    meg_lower_forward(&l);
    if (out->train) meg_lower_backward(&l);
    join_blocks(&l);
    write_lines(out);
    meg_entry_place(out);
    for (int b = 0; b < MEG_BLOCKS; b++)
        free(l.list[b].at);
    free(l.holders);
    free(l.duplicate);
    meg_pool_free(l.pool);
    return meg_entry_check(out, e);
}
