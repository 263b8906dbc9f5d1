/* The plan of a rank: what it is made of, and what all rooms of plan/ fill in. Made by plan/plan.h. */
#ifndef MEG_PLAN_PROGRAM_PLAN_H
#define MEG_PLAN_PROGRAM_PLAN_H

#include "plan/program/program.h"

typedef struct meg_profile { /* what planning knows of a device */
    void *context;
    void (*describe)(void *context, const meg_request *r, meg_spec *s);
    meg_dtype real;
    bool far; /* messages need staging (staging.h) */
    const struct meg_prices
        *prices; /* what kernels cost (machine/prices.h); NULL: the built-in book */
} meg_profile;

typedef enum meg_zero { /* zero=: what is cut over the ranks that share a weight */
    MEG_ZERO_NOTHING,
    MEG_ZERO_STATES, /* of the optimizer */
    MEG_ZERO_ALL     /* weights and gradients, too */
} meg_zero;

typedef enum meg_channels { /* channels=: what a mesh with c cuts */
    MEG_CHANNELS_AUTO,
    MEG_CHANNELS_FILTER,
    MEG_CHANNELS_INPUT /* "channel" */
} meg_channels;

typedef enum meg_recompute { /* recompute=: what is made again in backward */
    MEG_RECOMPUTE_CHEAP,     /* "auto": what is cheap, of what is kept anyway */
    MEG_RECOMPUTE_NONE,
    MEG_RECOMPUTE_BLOCKS /* "segments": also runs of blocks, as many as the budget asks for */
} meg_recompute;

typedef enum meg_feeding { /* feed=: who has the data */
    MEG_FEED_EACH,         /* each rank reads what its programs load */
    MEG_FEED_READER        /* the first rank of stage 0 reads for the replica, and sends it on */
} meg_feeding;

typedef enum meg_goal { /* goal=: what words that are not given are chosen for */
    MEG_GOAL_TIME,
    MEG_GOAL_MEMORY,
    MEG_GOAL_COST, /* ranks x seconds */
    MEG_GOAL_GIVEN /* nothing is searched: the words are the plan */
} meg_goal;

typedef struct meg_plan_options {
    int64_t batch, micro, norm, budget;
    int64_t replicas, stages, chunks, replications; /* 0: as many as there are ranks for */
    int64_t bucket;                                 /* bytes */
    int level, balance;                             /* of stages */
    char schedule[MEG_TEXT], allreduce[MEG_TEXT];
    const char *assign, *mesh; /* as long as there are stages for */
    int64_t wide;              /* halos in a row that come in one exchange */
    int channels;              /* meg_channels */
    int zero;                  /* meg_zero */
    int recompute;             /* meg_recompute */
    int feed;                  /* meg_feeding */
    int goal;                  /* meg_goal: of a search; the plan itself does not look at it */
    bool keep_grads;           /* gradients stay readable after the step */
    bool input_grads;          /* so do gradients by the inputs */
    bool predict;              /* evaluation keeps the network's outputs */
    bool phases; /* reducing operators as several nodes, as a plan that cuts them has them */
    char optimizer[MEG_TEXT];
} meg_plan_options;

enum {
    MEG_HELD_KEYS = 2 + MEG_AUXES /* of a value: itself, its gradient, optimizer states */
};

enum {
    MEG_ENTRY_TRAIN,
    MEG_ENTRY_TRAIN_TAIL,
    MEG_ENTRY_EVAL,
    MEG_ENTRIES
};

typedef struct meg_world { /* the ranks of a job, and who this is */
    int rank, ranks;
} meg_world;

typedef struct meg_held_slot { /* held memory, the same in all entries */
    int value;
    meg_role role;
    int index;
    meg_box box; /* what the rank holds of it */
    meg_format format;
    int64_t offset, bytes;
} meg_held_slot;

typedef struct meg_plan_input { /* all that a plan is made of, besides its graph */
    const meg_profile *profile;
    const meg_world *world;
    const char *options;
    int64_t samples;   /* see below */
    const bool *plain; /* (values of the source) by number in the entries' graphs: weights that all
                           ranks hold in plain format, since some that sum their gradients would not
                           hold them alike (exec/alike.h); NULL: none */
} meg_plan_input;

struct meg_plan {
    void *owner; /* of the public interface: its context */
    meg_pool *pool;
    meg_pool *lowered; /* of what is this rank's alone: new where the plan becomes another rank's */
    const meg_graph *source;
    const char *data; /* for people: the data set's name; NULL: none */
    int64_t samples;  /* of it; 0: unknown */
    meg_plan_options options;
    const meg_optimizer *optimizer;
    void *settings; /* of the optimizer */
    meg_profile profile;
    meg_world world;
    const bool *plain;  /* as it was given */
    int replicas, each; /* ranks are numbered replica by replica; how many ranks one has */
    int directions;     /* of the schedule */
    int *place, *width; /* (2, stages) a stage's first rank within the replica, in each direction;
                            (stages) how many it has (places.h) */
    int tracks;         /* neighbouring ranks that have the same stages */
    int *track_first;   /* (tracks + 1) the first rank within the replica */
    int replica, track; /* of this rank */
    int *stage;         /* of the source's nodes */
    int segments, *segment_of;
    meg_segment *segment;
    int feeder; /* the segment of nodes that hand out data, 1 and on; 0: none */
    int held_slots;
    meg_held_slot *held;
    size_t held_room;
    int *held_at;                 /* value * keys + key: number of its held slot + 1; 0: none */
    meg_entry entry[MEG_ENTRIES]; /* tail: .batch == 0 where there is none */
    int64_t bytes[MEG_REGIONS];   /* the largest entry's */
    int64_t arena;
    int tags;           /* of messages: 0 .. tags - 1 (tags.h) */
    double seconds;     /* of a train step */
    const char *why;    /* for people: how its words were chosen; NULL: they were given */
    const char *words;  /* that it was made of */
    const char *chosen; /* those of them that a search found; NULL: none was made */
    int chosen_for;     /* meg_goal of that search; MEG_GOAL_GIVEN: none was made */
};

int64_t meg_plan_base(const meg_plan *p, meg_region region); /* its first byte in the arena */

#endif
