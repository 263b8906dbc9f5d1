/* Lowering one entry: shared by its parts (private to plan/lower).
 *
 *     emit.c       slots and instructions
 *     teams.c      reductions over several ranks
 *     station.c    what the station makes and holds; which ranks hold the same
 *     stash.c      what forward leaves for backward, what is recomputed
 *     held.c       held memory: weights, gradients, optimizer states, whole or in shards
 *     operands.c   where an operand comes from: home, a copy, shards, recomputing
 *     recompute.c  reruns of blocks that backward runs again; what a cut into reruns is decided by
 *     gradients.c  contributions to a value's gradient
 *     messages.c   what goes from rank to rank on behalf of values
 *     shards.c     zero=: updating, gathering ahead, summing weights that are held in shards
 *     settle.c     complete gradients: sums over ranks, the block update
 *     forward.c    the blocks begin, labels, forward
 *     backward.c   the blocks backward, weights
 *     idle.c       stations without samples
 *     assemble.c   stations, put together of all these
 *     attempts.c   which blocks are run again: the best of several ways to lower
 *     lower.c      the entry
 *
 * Each calls only those above it.
 */
#ifndef MEG_PLAN_LOWER_LOWERING_H
#define MEG_PLAN_LOWER_LOWERING_H

#include "plan/distribute/distribute.h"
#include "plan/layout/transfer.h"
#include "plan/partition/reruns.h"
#include "plan/program/tags.h"

typedef struct meg_instrs { /* of instructions, one per block */
    int count;
    meg_instr *at;
    size_t room;
} meg_instrs;

typedef struct meg_contributions { /* contributions to a gradient, in program order */
    int count;
    int *slot; /* room for one per consumer, and one more */
} meg_contributions;

typedef struct meg_duplicate { /* a value in another format or box than its home's */
    int value, slot;
} meg_duplicate;

typedef struct meg_exchange { /* a value's halo, or a value that moves to another segment */
    int from, to;             /* values: the same, or input and output of the move */
    bool back;                /* gradients come back */
    int tag;                  /* of the value; the gradient's follows after all micro-batches */
    int sends, receives;
    meg_parcel *send, *receive; /* this rank's; of a move within a station, what stays on the rank
                                   is among those received */
    int *came;                  /* (receives) slots; -1: it stays on the rank */
    int *returned;              /* (sends) slots of the gradients */
} meg_exchange;

typedef struct meg_along_key { /* of ranks that reduce together along axes of a segment's mesh */
    int segment, axes;         /* bits */
    bool all;                  /* directions */
} meg_along_key;

enum {
    MEG_SEVERAL = -2 /* segments */
};

typedef struct meg_lower {
    meg_plan *plan;
    const meg_entry *entry;
    meg_station *out;
    const meg_graph *g;
    meg_pool *pool; /* of what follows */
    meg_instrs list[MEG_BLOCKS];
    meg_block_kind block; /* the one being written */

    bool *mine;        /* node: belongs to the station, and the rank is on its mesh */
    int *read_in;      /* value: the segment whose nodes read it; MEG_SEVERAL */
    bool *goes;        /* value: is sent, or moved, as it lies: nothing may be written over it */
    int here;          /* stations of the rank that have this stage */
    meg_team *sharers; /* weight: the ranks that hold the same of it */
    bool *odd;         /* weight: the model's rank holds another part, so its format says nothing */
    bool foreign;  /* lowered as the model of each segment (spread.c) is: it says formats of weights
                          and no more, so that what is summed at once lies in the order of the rank's
                          own program */
    bool *grad;    /* value: has a gradient */
    bool *early;   /* node: depends on labels alone, so that it comes before all others */
    bool *active;  /* node: lies on a way from a parameter to a loss */
    bool *keep;    /* value: stays from forward to backward */
    bool *replay;  /* value: is recomputed in backward, wherever it is read */
    bool *remade;  /* value: is recomputed when backward comes to its rerun, and stays */
    bool *crosses; /* value: another rerun than its maker's needs it */
    bool *ran;     /* rerun: has been run again */
    int *uses;     /* value: consumers in forward still to come */
    int *owed;     /* parameter: contributions to its gradient still to come */

    int *home;                /* value: its slot; -1: not there (now) */
    meg_format *format;       /* value: the entry's own list */
    int *aux;                 /* node * MEG_AUXES + i: slot; -1 */
    meg_contributions *parts; /* value: contributions to its gradient */
    int *holders;             /* slot: how many contributions lie in it */
    size_t holders_room;
    int duplicates;
    meg_duplicate *duplicate; /* valid within one block */
    size_t duplicate_room;
    int scalars; /* slot */
    int summing; /* slot: scratch of all sums of scattered weights' gradients; -1: none yet */
    int *held;   /* value * MEG_HELD_KEYS + key: slot; -1 */

    int exchanges;
    meg_exchange *exchange;          /* those that the rank takes part in */
    int *halo, *moved;               /* value: its exchange as a halo, by a move to it; -1: none */
    int *states_first, *states_last; /* segment: slots of the states that its nodes write; -1 */
    int *settled; /* parameters whose gradients are summed, in the order of completion */
    int settled_count;
    int bucket_first; /* of `settled`: the first that no bucket has */
    struct {
        meg_along_key key;
        meg_team team;
    } * along; /* teams that were made (teams.c) */
    struct {
        int count, *at;
        meg_team team;
    } * local; /* likewise, by the numbers of their ranks within a replica */
    int alongs, locals;
    size_t along_room, local_room;
    int summed, summed_slot; /* scattered weight whose gradient is being summed, if any, else -1 */
} meg_lower;

/* ---- station.c ---- */

void meg_lower_parts(meg_lower *l);                  /* what the station makes and holds */
int meg_lower_rank(const meg_lower *l, int segment); /* whose part of it is lowered */

/* ---- stash.c ---- */

void meg_lower_stash(meg_lower *l);
bool meg_lower_wants(const meg_lower *l, const meg_node *v, meg_pass pass); /* a backward pass */
/* X and Y operands that the node's backward passes read. */
meg_mask meg_lower_back_reads(const meg_lower *l, const meg_node *v);
bool meg_lower_remakes(const meg_lower *l, const meg_node *v); /* can it be run again? */
/* The input whose gradient the plan keeps (input_grads=1), and as which nodes of a segment read this value; -1: it
 * is none. */
int meg_lower_input(const meg_lower *l, int value);
/* Does the node contribute to the gradient of a value that it reads? */
bool meg_lower_gives(const meg_lower *l, const meg_node *v, int value);

/* ---- emit.c ---- */

int meg_lower_slot(meg_lower *l, meg_slot s);      /* -> its number */
int meg_lower_step_slot(meg_lower *l, meg_slot s); /* lives for the step */
meg_instr meg_lower_instr(meg_code code, const meg_node *v, meg_pass pass);
void meg_lower_emit(meg_lower *l, const meg_instr *i);
void meg_lower_describe(meg_lower *l, const meg_node *v, meg_pass pass, meg_spec *s);
void meg_lower_work(meg_instr *i, const meg_spec *s); /* what it is priced by, when it is emitted */
void meg_lower_price(meg_lower *l, meg_instr *i); /* the same; an instruction other than a kernel */
int meg_lower_copy(meg_lower *l, int slot, meg_format to, int64_t bytes, const meg_node *user);
void meg_lower_fill(meg_lower *l, int into, int slot); /* copies where the boxes meet */
/* Another box: zero where the slot has nothing. */
int meg_lower_cut(meg_lower *l, int slot, const meg_box *box, meg_format to);
/* What was made becomes what is held; the halo is still to come. */
int meg_lower_widen(meg_lower *l, int slot, int value);
int meg_lower_add(meg_lower *l, int into, int a, int b); /* into: slot, or -1 for a new one */
void meg_lower_zero(meg_lower *l, int slot);
meg_box meg_lower_part(const meg_lower *l, int value); /* what the rank makes of it, without halo */
/* The box of an operand, as the kernel wants it. */
meg_box meg_lower_box(const meg_lower *l, const meg_node *v, const meg_spec *s, int operand);
void meg_lower_scratch(meg_lower *l, meg_instr *i, const meg_spec *s);
/* A fresh frame slot for an operand that the kernel writes. */
int meg_lower_write(meg_lower *l, const meg_node *v, int operand, const meg_spec *s);

/* ---- teams.c ---- */

/* Sums a slot over a team of ranks; returns the instruction, which is not emitted yet. */
meg_instr meg_lower_reduce(meg_lower *l, int slot, const meg_team *team, int tag);
/* The same with scratch memory that others use, too (one waits for the other), or none (-1). */
meg_instr meg_lower_reduce_in(meg_lower *l, int slot, int scratch, const meg_team *team, int tag);
int meg_lower_reduce_scratch(meg_lower *l, int64_t bytes); /* enough for sums of so many bytes */
/* Each of the team has an even shard of the slot, plain; all get all. */
void meg_lower_all_gather(meg_lower *l, int slot, const meg_team *team, int tag);
/* Ranks that make shares of a value's sum; of all directions, if told. */
meg_team meg_lower_shares(meg_lower *l, int value, bool all);
/* Ranks that have the same channels of the segment, in all directions. */
meg_team meg_lower_channels(meg_lower *l, int segment);
/* In every replica the ranks with these numbers, ascending, within it, which share a weight. */
meg_team meg_lower_everywhere(meg_lower *l, int value, const int local[], int count);
bool meg_lower_same_team(const meg_team *a, const meg_team *b);

/* ---- held.c ---- */

/* Are the weight's optimizer states cut over those that share it? Is all of it? */
bool meg_lower_parted(const meg_lower *l, int value);
bool meg_lower_scattered(const meg_lower *l, int value);
meg_box meg_lower_shard_box(const meg_lower *l, int value,
                            meg_box box); /* this rank's shard of the box */
/* Held memory: found, or made in this format. */
int meg_lower_held(meg_lower *l, int value, meg_role role, int index, meg_format format,
                   int64_t bytes);
int meg_lower_shard(meg_lower *l, int value); /* the rank's, of a scattered weight */
bool meg_lower_all_held(const meg_lower *l);  /* has each weight that the station reads a format? */

/* ---- operands.c ---- */

/* Slot of a value in the wanted format; copies, gathers or recomputes it where needed. */
int meg_lower_get(meg_lower *l, int value, meg_format format, int64_t bytes, const meg_node *user);
/* Its elements of this box, plain. */
int meg_lower_piece(meg_lower *l, int value, const meg_box *box);
/* Reads of a pass (X, Y, AUX) into the instruction's operands. */
void meg_lower_reads(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s);
void meg_lower_remake(meg_lower *l, int value);    /* unless it is there */
void meg_lower_fill_halo(meg_lower *l, int value); /* with what came from neighbours, if any did */

/* ---- recompute.c ---- */

typedef struct meg_weighed { /* a station's blocks, as it was lowered without reruns */
    meg_chain chain;
    int *block_of; /* node; -1: not the station's */
} meg_weighed;

meg_weighed meg_lower_weigh(const meg_lower *l);
void meg_lower_run_again(meg_lower *l,
                         int node); /* the node's rerun, if it is in one, and not yet */

/* ---- gradients.c ---- */

void meg_lower_contribute(meg_lower *l, int value, int slot, const meg_node *from);
void meg_lower_some(meg_lower *l, int value); /* zeros, if nothing has been contributed */
void meg_lower_gather(meg_lower *l, int value, int most);
void meg_lower_keep_input(meg_lower *l,
                          int value); /* its gradient, if it is asked for and complete */

/* ---- messages.c ---- */

void meg_lower_exchanges(meg_lower *l);
void meg_lower_receive(meg_lower *l, bool early);     /* what forward reads; or what is early */
void meg_lower_send(meg_lower *l, int value);         /* what forward has made */
void meg_lower_take(meg_lower *l, int value);         /* what came: the halo, or what moved */
void meg_lower_receive_back(meg_lower *l);            /* gradients that backward reads */
void meg_lower_send_back(meg_lower *l, int exchange); /* of a complete gradient */
void meg_lower_take_back(meg_lower *l, int value);    /* what came of its gradient */

/* ---- shards.c ---- */

/* Gathers what the node reads, and some of what those after it (back: before it) read: while kernels
 * work, the next one's weights come. */
void meg_lower_ahead(meg_lower *l, int node, bool back);
void meg_lower_update(meg_lower *l, int value, int gradient);
/* A scattered weight's complete gradient, of a micro-batch, is summed over the team: slot of it. */
int meg_lower_sum(meg_lower *l, int value, int slot);

/* ---- settle.c ---- */

bool meg_lower_direct(meg_lower *l, int value);  /* may a kernel write the sum itself? */
int meg_lower_gradient(meg_lower *l, int value); /* held memory of the sum */
void meg_lower_states(meg_lower *l);
void meg_lower_settle(meg_lower *l, int value);
bool meg_lower_last(const meg_lower *l); /* what both directions of a stage share is done here */
void meg_lower_finish(meg_lower *l);

/* ---- forward.c, backward.c, idle.c ---- */

void meg_lower_begin(meg_lower *l);
void meg_lower_forward(meg_lower *l);
void meg_lower_state_first(meg_lower *l); /* states that go on before the first forward */
void meg_lower_backward(meg_lower *l);
void meg_lower_idle(meg_lower *l); /* leaves what concerns other ranks */

/* ---- assemble.c ---- */

typedef struct meg_variant { /* how the stations are lowered */
    bool foreign;
    const int *const *again; /* (stations) reruns; NULL: none */
    meg_weighed *weighed;    /* (stations) to be set; NULL: not asked */
} meg_variant;

/* In place of those that the entry has; frames are placed. */
void meg_lower_stations(meg_plan *p, meg_entry *e, int rank, const meg_variant *how);

/* ---- attempts.c ---- */

void meg_lower_reruns(meg_plan *p, meg_entry *e, int rank);

#endif
