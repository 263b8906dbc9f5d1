/* Programs: what a plan is lowered to, and what engine, check and explain all read.
 *
 *     entry    "train", its tail for the last partial batch of an epoch, "eval"
 *     block    a list of instructions over slots; lowered and prepared once
 *     line     RUN block for micro-batch m: the entry's program is a short list of these
 *     slot     {box, dtype, format} at (region, offset)
 *
 * Regions, in arena order:
 *
 *     [ held: weights, states, optimizer | step: labels, counts, losses | frame: one micro-batch ]
 *
 * Held memory is shared by all entries; the arena is as large as the largest entry needs.
 */
#ifndef MEG_PLAN_PROGRAM_H
#define MEG_PLAN_PROGRAM_H

#include "device/device.h"

typedef enum meg_region { MEG_HELD, MEG_STEP, MEG_FRAME, MEG_REGIONS } meg_region;

typedef enum meg_role {
    MEG_ROLE_VALUE,
    MEG_ROLE_GRADIENT,
    MEG_ROLE_AUX,     /* index: which */
    MEG_ROLE_SCRATCH,
    MEG_ROLE_STATE,   /* of the optimizer; index: which */
    MEG_ROLE_SCALARS, /* meg_scalars of the step */
    MEG_ROLE_SEED,    /* the weight of a loss: where backward starts */
    MEG_ROLE_TOTAL    /* a per-step sum over micro-batches: counts, losses */
} meg_role;

typedef struct meg_slot {
    meg_role role;
    int value; /* of the entry's graph; AUX, SCRATCH: the node; SCALARS: -1 */
    int index;
    meg_box box;
    meg_dtype dtype;
    meg_format format;
    meg_region region;
    int64_t offset, bytes;
    int64_t per_micro; /* bytes from one micro-batch to the next: labels of a whole step */
    int born, dies;    /* frame slots: first and last instruction that touches them */
} meg_slot;

typedef struct meg_instr {
    meg_code code;
    meg_pass pass;
    int node;               /* -1: none */
    int slot[MEG_OPERANDS]; /* -1: no such operand */
    meg_mask written;       /* operands it writes */
    double seconds;
    char impl[48];
} meg_instr;

typedef enum meg_block_kind {
    MEG_BLOCK_BEGIN,   /* once: scalars, labels, zeroed totals */
    MEG_BLOCK_LABELS,  /* per micro-batch, before all others: what only depends on labels */
    MEG_BLOCK_FORWARD,
    MEG_BLOCK_BACKWARD,
    MEG_BLOCK_UPDATE,  /* once: where gradients were summed over micro-batches */
    MEG_BLOCKS
} meg_block_kind;

typedef struct meg_block {
    int first, count; /* instructions; empty blocks are not run */
} meg_block;

typedef struct meg_line {
    meg_block_kind block;
    int micro;
} meg_line;

typedef struct meg_entry {
    const char *name;
    bool train;
    int64_t batch; /* samples of a step */
    int micro;     /* micro-batches; each has batch / micro samples */
    meg_graph *graph; /* for one micro-batch, fused */
    meg_dtype real;   /* what MEG_F32 values are stored as */
    meg_format *format; /* of each value at home, and of its gradient */
    int slots, instrs, lines;
    meg_slot *slot;
    meg_instr *instr;
    meg_line *line;
    size_t slot_room, instr_room, line_room;
    meg_block block[MEG_BLOCKS];
    int64_t bytes[MEG_REGIONS];
    int loss[MEG_LOSSES]; /* slots of the totals */
    int correct;          /* likewise; -1: none */
    double seconds;       /* predicted, per step */
} meg_entry;

const char *meg_block_name(meg_block_kind b);

/* What an instruction asks of the device. The same words go to `describe` when the plan is made
 * and to `prepare` when it runs. Operands without a slot are described by their value. */
void meg_entry_request(const meg_entry *e, const meg_instr *i, meg_request *r);
meg_dtype meg_entry_dtype(const meg_entry *e, meg_dtype t); /* real as the device has it */

/* Bytes of a region from its slots' offsets; gives frame slots their offsets by lifetime. */
void meg_entry_place(meg_entry *e);

/* Proves: every operand was written before it is read and not freed yet; slots that are alive at
 * once do not overlap; frame slots are freed once, at their last use; offsets lie in the region. */
meg_status meg_entry_check(const meg_entry *e, meg_error *error);

/* Text: every instruction, one a line. `figures`: with bytes, offsets and seconds. */
void meg_entry_print(const meg_entry *e, bool figures, FILE *out);

void meg_entry_clear(meg_entry *e);

#endif
