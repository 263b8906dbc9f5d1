/* Lowering one entry: shared by its parts (private to plan/).
 *
 *     keep.c       what forward leaves for backward, what is recomputed
 *     emit.c       slots, instructions, formats
 *     forward.c    the blocks begin, labels, forward
 *     backward.c   the blocks backward, update
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

typedef struct meg_lower {
    meg_plan *plan;
    meg_entry *out;
    const meg_graph *g;
    meg_pool *pool; /* of what follows */
    meg_instrs list[MEG_BLOCKS];
    meg_block_kind block; /* the one being written */

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
} meg_lower;

/* keep.c */
void meg_lower_keep(meg_lower *l);
bool meg_lower_wants(const meg_lower *l, const meg_node *v, meg_pass pass); /* a backward pass */

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
int meg_lower_get(meg_lower *l, int value, meg_format format, int64_t bytes,
                  const meg_node *user);
/* Reads of a pass (X, Y, AUX) into the instruction's operands. */
void meg_lower_reads(meg_lower *l, meg_instr *i, const meg_node *v, const meg_spec *s);
void meg_lower_scratch(meg_lower *l, meg_instr *i, const meg_spec *s);
/* A fresh frame slot for an operand that the kernel writes. */
int meg_lower_write(meg_lower *l, const meg_node *v, int operand, const meg_spec *s);

/* forward.c, backward.c */
void meg_lower_begin(meg_lower *l);
void meg_lower_forward(meg_lower *l);
void meg_lower_replay(meg_lower *l, int value);
void meg_lower_backward(meg_lower *l);

#endif
