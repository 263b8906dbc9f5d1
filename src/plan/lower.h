/* Lowering one entry: shared by its parts (private to plan/).
 *
 *     keep.c       what forward leaves for backward, what is recomputed
 *     emit.c       slots, instructions, formats
 *     forward.c    the blocks begin, labels, forward
 *     backward.c   the blocks backward, weights
 *     settle.c     complete gradients: sums over ranks, the block update
 *     cross.c      what goes from stage to stage
 *     idle.c       stations without samples
 *     lower.c      puts them together
 */
#ifndef MEG_PLAN_LOWER_H
#define MEG_PLAN_LOWER_H

#include "plan/plan.h"

typedef struct meg_instrs { /* of instructions, one per block */
    int count;
    meg_instr *at;
    size_t room;
} meg_instrs;

typedef struct meg_parts { /* contributions to a gradient, in program order */
    int count;
    int *slot; /* room for one per consumer, and one more */
} meg_parts;

typedef struct meg_duplicate { /* a value in another format than its home's */
    int value, slot;
} meg_duplicate;

typedef struct meg_passage { /* a value that another stage reads, once for each such stage */
    int value, from, to;      /* stages */
    bool back;                /* its gradient comes back */
    int tag;                  /* of the value; the gradient's follows after all micro-batches */
} meg_passage;

enum {
    MEG_BUCKETS = 1 << 10,   /* of a stage, at most */
    MEG_TAG_VALUE = 1 << 20, /* messages between stages come before */
    MEG_TAG_GRADIENT = 1 << 23,
    MEG_TAG_BUCKET = 1 << 24,
    MEG_TAG_STATES = (1 << 24) + (1 << 20)
};

enum {
    MEG_SEVERAL = -2 /* stages */
};

enum {
    MEG_HELD_KEYS = 2 + MEG_AUXES /* of a value: itself, its gradient, optimizer states */
};

typedef struct meg_lower {
    meg_plan *plan;
    const meg_entry *entry;
    meg_station *out;
    const meg_graph *g;
    meg_pool *pool; /* of what follows */
    meg_instrs list[MEG_BLOCKS];
    meg_block_kind block; /* the one being written */

    bool *mine;   /* node: belongs to the station */
    int *used_in; /* value: the stage whose nodes read it; MEG_SEVERAL */
    int *reader;  /* value: the first of the station's nodes that reads it */
    bool *goes;   /* value: another stage reads it */
    int here;     /* stations of the rank that have this stage */
    meg_team team[3]; /* ranks that have the stage: in any direction, in the first, the second */
    bool *grad;   /* value: has a gradient */
    bool *active; /* node: lies on a way from a parameter to a loss */
    bool *keep;   /* value: stays from forward to backward */
    bool *replay; /* value: is recomputed in backward */
    int *uses;    /* value: consumers in forward still to come */
    int *owed;    /* parameter: contributions to its gradient still to come */

    int *home;          /* value: its slot; -1: not there (now) */
    meg_format *format; /* value: the entry's own list */
    int *aux;           /* node * MEG_AUXES + i: slot; -1 */
    meg_parts *parts;   /* value: contributions to its gradient */
    int *holders;       /* slot: how many contributions lie in it */
    size_t holders_room;
    int duplicates;
    meg_duplicate *duplicate; /* valid within one block */
    size_t duplicate_room;
    int scalars; /* slot */
    int *held;   /* value * MEG_HELD_KEYS + key: slot; -1 */

    int crossings;
    meg_passage *crossing;        /* of the whole graph, by value and receiving stage */
    int *coming;                   /* crossing: slot of the gradient that came; -1 */
    int states_first, states_last; /* slots of the states that the station writes; -1 */
    int *settled; /* parameters whose gradients are summed, in the order of completion */
    int settled_count;
    int bucket_first, buckets; /* of `settled`: the first that no bucket has; how many there are */
} meg_lower;

/* keep.c */
void meg_lower_keep(meg_lower *l);
bool meg_lower_wants(const meg_lower *l, const meg_node *v, meg_pass pass); /* a backward pass */
/* Does the node contribute to the gradient of a value that it reads? */
bool meg_lower_gives(const meg_lower *l, const meg_node *v, int value);

/* emit.c */
int meg_lower_slot(meg_lower *l, meg_slot s); /* -> its number */
int meg_lower_held(meg_lower *l, int value, meg_role role, int index, meg_format format,
                   int64_t bytes); /* held memory: found, or made in this format */
void meg_lower_emit(meg_lower *l, const meg_instr *i);
meg_instr meg_lower_instr(meg_code code, const meg_node *v, meg_pass pass);
void meg_lower_describe(meg_lower *l, const meg_node *v, meg_pass pass, meg_spec *s);
void meg_lower_price(meg_lower *l, meg_instr *i); /* an instruction other than a kernel */
int meg_lower_copy(meg_lower *l, int slot, meg_format to, int64_t bytes, const meg_node *user);
int meg_lower_add(meg_lower *l, int into, int a, int b); /* into: slot, or -1 for a new one */
void meg_lower_zero(meg_lower *l, int slot);
/* Slot of a value in the wanted format; copies or recomputes it where needed. */
int meg_lower_get(meg_lower *l, int value, meg_format format, int64_t bytes, const meg_node *user);
/* Reads of a pass (X, Y, AUX) into the instruction's operands. */
void meg_lower_reads(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s);
void meg_lower_scratch(meg_lower *l, meg_instr *i, const meg_spec *s);
/* A fresh frame slot for an operand that the kernel writes. */
int meg_lower_write(meg_lower *l, const meg_node *v, int operand, const meg_spec *s);

/* cross.c */
void meg_lower_crossings(meg_lower *l);
void meg_lower_receive(meg_lower *l);                      /* what forward reads */
void meg_lower_send(meg_lower *l, const meg_node *v);      /* what forward has made */
void meg_lower_receive_back(meg_lower *l);                 /* gradients that backward reads */
void meg_lower_send_back(meg_lower *l, const meg_node *v); /* complete behind this node */

/* Sums a slot over a team of ranks; returns the instruction, which is not emitted yet. */
meg_instr meg_lower_reduce(meg_lower *l, int slot, const meg_team *team, int tag);
meg_team meg_plan_team(const meg_plan *p, const meg_entry *e, int direction, const bool stages[]);
meg_team meg_lower_team(const meg_lower *l, int direction); /* of the station's stage */

/* idle.c */
void meg_lower_idle(meg_lower *l); /* leaves what concerns other ranks */

/* settle.c */
bool meg_lower_direct(meg_lower *l, int value); /* may a kernel write the sum itself? */
int meg_lower_gradient(meg_lower *l, int value); /* held memory of the sum */
void meg_lower_states(meg_lower *l);
void meg_lower_settle(meg_lower *l, int value);
bool meg_lower_last(const meg_lower *l); /* what both directions of a stage share is done here */
void meg_lower_finish(meg_lower *l);

/* forward.c, backward.c */
void meg_lower_gather(meg_lower *l, int value, int most);
void meg_lower_contribute(meg_lower *l, int value, int slot, const meg_node *from);
void meg_lower_begin(meg_lower *l);
int meg_lower_step_slot(meg_lower *l, meg_slot s); /* lives for the step */
void meg_lower_forward(meg_lower *l);
void meg_lower_replay(meg_lower *l, int value);
void meg_lower_backward(meg_lower *l);

#endif
