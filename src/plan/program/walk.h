/* The walk: the order in which a rank does the work of a step. The engine runs it, the proof that
 * nobody waits for ever (events.h) replays it, and messages, bytes and seconds are counted on it.
 *
 *     the receives of every line that is the first in its frame     are posted at the beginning
 *     for each line
 *         the instructions of its block, in order, receives left out; those marked `last` only where
 *         the block runs for the last time
 *         end of the line
 *         the receives of the line that uses its frame next         their memory is free from here on
 *
 *     meg_walk w = meg_walk_new(entry);
 *     while (meg_walk_next(&w))
 *         ... w.what, w.line, w.station, w.instr ...
 */
#ifndef MEG_PLAN_PROGRAM_WALK_H
#define MEG_PLAN_PROGRAM_WALK_H

#include "plan/program/plan.h"

typedef enum meg_walk_what {
    MEG_WALK_POST,  /* a RECV, ahead of its line */
    MEG_WALK_ISSUE, /* any other instruction */
    MEG_WALK_END    /* of a line; no instruction */
} meg_walk_what;

typedef struct meg_walk {
    meg_walk_what what;
    const meg_line *line;
    const meg_station *station;
    const meg_instr *instr;
    int at; /* the instruction's number in its station */

    const meg_entry *entry; /* private from here on */
    int number;             /* line of the entry; -1: still posting the first receives */
    int posts, next;        /* line whose receives are posted; instruction to come */
} meg_walk;

meg_walk meg_walk_new(const meg_entry *e);
bool meg_walk_next(meg_walk *w); /* false: the step is done */

int meg_walk_begins(const meg_walk *w);     /* the line that the next one is the first of; or -1 */
void meg_walk_skip(meg_walk *w, int lines); /* leaves out lines, of which one would begin next */

/* Where a slot lies in the arena when a line runs. */
int64_t meg_slot_place(const meg_plan *p, const meg_station *t, const meg_slot *s,
                       const meg_line *line);

typedef struct meg_messages { /* of one rank, in one step */
    int64_t sent, bytes;      /* to single ranks */
    int64_t sums, sum_bytes;  /* reductions over several; a half has half the bytes */
} meg_messages;

meg_messages meg_entry_messages(const meg_entry *e);
double meg_entry_seconds(const meg_entry *e);              /* of its kernels */
size_t meg_entry_count(const meg_entry *e, meg_code code); /* of such instructions in a step */

#endif
