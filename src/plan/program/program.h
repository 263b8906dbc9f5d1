/* Programs: what a plan is lowered to, and what engine, check and explain all read.
 *
 *     entry    "train", its tail for the last partial batch of an epoch, "eval"
 *     station  a stage in one direction, as this rank computes it; most ranks have one
 *     block    forward, backward, ... of a station: instructions, lowered and prepared once
 *     line     a block for micro-batch m in frame f: the entry's program is a short list of these
 *     slot     {box, dtype, format} at (region, offset)
 *
 * Regions, in arena order:
 *
 *     [ held: weights, states, optimizer | step: labels, counts, losses | frames | temporary ]
 *
 * Held memory is shared by all entries; the arena is as large as the largest entry needs. A frame
 * is what one micro-batch leaves in a station between forward and backward; a station has as many
 * as it holds micro-batches at once. Temporary memory is used within a block. Where a single
 * station has a single frame, temporary memory is placed among what is kept, since it fits into
 * the gaps that backward leaves there.
 */
#ifndef MEG_PLAN_PROGRAM_PROGRAM_H
#define MEG_PLAN_PROGRAM_PROGRAM_H

#include "device/device.h"
#include "plan/layout/layout.h"
#include "plan/schedule/timetable.h"

enum {
    MEG_STAGES = 256,             /* at most */
    MEG_SEGMENTS = 512,           /* at most */
    MEG_WAYS = 2,                 /* directions, at most */
    MEG_ALIGN = 64,               /* of slots, in bytes */
    MEG_REDUCE_PIECE = 512 << 10, /* bytes of a message of a reduction */
    MEG_REDUCE_PIECES = 4         /* that are under way at once */
};

typedef enum meg_region {
    MEG_HELD,
    MEG_STEP,
    MEG_FRAME,
    MEG_TEMPORARY,
    MEG_REGIONS
} meg_region;

typedef enum meg_role {
    MEG_ROLE_VALUE,
    MEG_ROLE_GRADIENT,
    MEG_ROLE_AUX, /* index: which */
    MEG_ROLE_SCRATCH,
    MEG_ROLE_STATE,   /* of the optimizer; index: which */
    MEG_ROLE_SCALARS, /* meg_scalars of the step */
    MEG_ROLE_SEED,    /* the weight of a loss: where backward starts */
    MEG_ROLE_TOTAL,   /* a per-step sum over micro-batches: counts, losses */
    MEG_ROLE_BUCKET,  /* several gradients or states that are reduced at once */
    MEG_ROLE_OUTPUT,  /* of the network, of the whole step; index: which of the graph's */
    MEG_ROLE_INPUT_GRADIENT /* likewise: a share of the gradient by an input; index: the input's number among values */
} meg_role;

typedef struct meg_slot {
    meg_role role;
    int value; /* of the entry's graph; AUX, SCRATCH: the node; SCALARS, BUCKET: -1 */
    int index;
    meg_box box;
    meg_dtype dtype;
    meg_format format;
    meg_region region;
    int64_t offset, bytes;
    int64_t per_micro; /* bytes from one micro-batch to the next: labels of a whole step */
    int born, dies;    /* frame slots: first and last instruction that touches them */
} meg_slot;

typedef enum meg_half { /* of a REDUCE of a weight, or its gradient, that ranks have even parts of */
    MEG_HALF_BOTH,
    MEG_HALF_SCATTER, /* each gets the sum of its part; the rest is spoilt */
    MEG_HALF_GATHER   /* each gives its part; all get all */
} meg_half;

typedef struct meg_instr {
    meg_code code;
    meg_pass pass;
    int node;               /* -1: none */
    int slot[MEG_OPERANDS]; /* -1: no such operand */
    meg_mask written;       /* operands it writes */
    double flops, traffic;  /* of a kernel: see meg_spec */
    double seconds;         /* by the profile's prices */
    char impl[48];
    int peer; /* SEND, RECV: a rank; REDUCE: a team of the entry */
    int tag;  /* of these: see tags.h; SEND, RECV: plus the micro-batch */
    bool max; /* REDUCE: the largest instead of the sum */
    meg_half half;
    bool last; /* only for the last micro-batch of the station */
} meg_instr;

typedef enum meg_block_kind {
    MEG_BLOCK_BEGIN,   /* once: scalars, labels, zeroed totals */
    MEG_BLOCK_LABELS,  /* per micro-batch, before all others: what only depends on labels */
    MEG_BLOCK_COUNTED, /* once: totals of labels, over all ranks */
    MEG_BLOCK_FORWARD,
    MEG_BLOCK_BACKWARD,
    MEG_BLOCK_WEIGHTS, /* weight gradients, where the schedule wants them apart */
    MEG_BLOCK_TIED,    /* once: begins the sums of weights that several stages share */
    MEG_BLOCK_UPDATE,  /* once: where gradients were summed over micro-batches or ranks */
    MEG_BLOCKS
} meg_block_kind;

typedef struct meg_block {
    int first, count; /* instructions; empty blocks are not run */
} meg_block;

typedef struct meg_line {
    int station;
    meg_block_kind block;
    int micro;   /* of the step */
    int ordinal; /* among the station's: where its labels lie */
    int frame;
    bool last;  /* the block runs no more in this step */
    int next;   /* line that uses the same frame next; -1: none. Its receives may be posted as soon
                  as this one is issued: none of their memory is in use in between */
    bool first; /* no line before it uses the frame */
} meg_line;

typedef struct meg_segment { /* nodes of a stage that are cut alike, over a mesh of its ranks */
    int stage;
    int dim[MEG_AXES];              /* of the mesh of a replica */
    int size;                       /* their product */
    const int64_t *share[MEG_AXES]; /* (dim) of the parts along it; NULL: all alike */
} meg_segment;

typedef struct meg_station {
    const struct meg_entry *entry;
    int stage, direction;
    int rank; /* whose part it is: this rank's, but an idle one's is that of one with samples */
    int *position;      /* segment: on its mesh; -1: not there */
    meg_work *work;     /* node: what the rank makes of it */
    meg_box *box;       /* value: what the rank has of it: what it makes, or holds, and its halo */
    int micros;         /* micro-batches that pass through it */
    int frames;         /* how many of them it holds at once */
    int64_t frame;      /* bytes of a frame */
    int64_t frame_base; /* where its frames begin in their region */
    meg_format *format; /* of each value at home, and of its gradient */
    int slots, instrs;
    meg_slot *slot;
    meg_instr *instr;
    size_t slot_room, instr_room;
    meg_block block[MEG_BLOCKS];
    const int
        *again; /* node: the rerun that backward runs forward again; -1: none; NULL: no node */
    int loss[MEG_LOSSES]; /* slots of the totals; -1: another station's */
    int correct;          /* likewise */
    int64_t temporary;    /* bytes */
} meg_station;

typedef struct meg_team { /* ranks that reduce together, ascending; of the plan's pool */
    int count, *rank;
    int segment, axes; /* positions of its mesh that differ along these axes (bits) alone ... */
    int way;           /* in this direction; MEG_WAYS: in all */
    int value;         /* ... or, segment -1, those that hold the same of this weight */
} meg_team;

typedef struct meg_entry {
    const char *name;
    bool train;
    int64_t batch;    /* samples of a step */
    int micro;        /* micro-batches; each has batch / micro samples */
    meg_graph *graph; /* for one micro-batch of all replicas, fused */
    meg_dtype real;   /* what MEG_F32 values are stored as */
    bool idle;        /* the replica has no samples: the rank is lowered like one that has */
    bool *sampled;    /* value: one along n for each sample, so that replicas cut it there */
    int *origin; /* of each node: the source's node that it comes from; NULL: several segments */
    int *segment_of; /* of each node */
    int *stage;      /* of each node */
    int segments;
    const meg_segment *segment;
    const meg_mesh **mesh; /* (directions, segments) over all replicas: n counts them, too */
    bool whole;            /* nothing is cut but samples */
    meg_layout *layout;    /* value: as its maker's ranks make it, on the first direction's mesh */
    const meg_box *
        *made; /* value: what each position makes of it, the halo included; NULL: its part */
    int *reader_first, *reader;   /* value: the nodes that read it */
    const int64_t **samples;      /* segment: (n of its mesh + 1) where samples are cut */
    int *telling_first, *telling; /* segment: indices along n among which are all kinds of them: the
                                     others' parts lie elsewhere, but have the same extents */
    int *exchange_number;         /* value: of its halo, or of the move that makes it; -1: none */
    bool *mixes;                  /* value: held beyond the samples of the rank's nodes */
    int *tag_number, tagged;      /* value: its number among the `tagged` ones that ranks may sum or
                                       gather; -1: it is none (tags.h) */
    const meg_timetable *timetable; /* who runs which task when */
    int stations, lines, teams;
    meg_station *station;
    meg_line *line;
    meg_team *team;
    size_t line_room, team_room;
    int64_t bytes[MEG_REGIONS];
    double seconds; /* predicted, per step */
} meg_entry;

const char *meg_block_name(meg_block_kind b);
int meg_shard_axis(
    const meg_box *box); /* along which ranks have even parts: the first that can be cut */

/* What an instruction asks of the device. The same words go to `describe` when the plan is made
 * and to `prepare` when it runs. Operands without a slot are described by their value. */
void meg_station_request(const meg_station *t, const meg_instr *i, meg_request *r);
meg_dtype meg_entry_dtype(const meg_entry *e, meg_dtype t); /* real as the device has it */

static inline int64_t meg_aligned(int64_t bytes)
{
    return (bytes + MEG_ALIGN - 1) / MEG_ALIGN * MEG_ALIGN;
}

/* Gives frame and temporary slots their offsets by lifetime. */
void meg_station_place(meg_station *t);
int64_t meg_station_stride(const meg_station *t); /* from a frame to the next */
/* Where the stations' frames lie, and bytes of these regions. */
void meg_entry_place(meg_entry *e);

/* Proves: every operand was written before it is read and not freed yet; slots that are alive at
 * once do not overlap; frame slots are freed once, at their last use; offsets lie in the region. */
meg_status meg_entry_check(const meg_entry *e, meg_error *error);

/* Text: every instruction, one a line. `figures`: with bytes, offsets and seconds. */
void meg_entry_print(const meg_entry *e, bool figures, FILE *out);

void meg_entry_clear(meg_entry *e);
void meg_entry_clear_stations(meg_entry *e);

#endif
