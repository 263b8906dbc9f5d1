/* The nouns of the public interface from the inside. */
#ifndef MEG_TRAIN_CONTEXT_H
#define MEG_TRAIN_CONTEXT_H

#include "base/log.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "exec/probe/book.h"
#include "plan/plan.h"

typedef struct meg_context_options {
    char device[MEG_TEXT];
    const char *machine; /* description or file; "": this one */
    int64_t threads;     /* 0: as many as there are cores for this rank */
    int64_t seed;
    int log;
    bool pin;
    const char *prices; /* "builtin", a file; "": the cache folder's */
} meg_context_options;

extern const meg_param meg_context_params[];

struct meg_context {
    meg_pool *pool; /* of the options' texts */
    meg_context_options options;
    meg_error error;
    meg_logger log;
    int all_cores;  /* that ranks on several nodes share (comm/cores.h); 0: each node has its own */
    int64_t *limit; /* (ranks) bytes that each may take; NULL: not asked yet (limits.h) */
    meg_comm *comm; /* of the job; NULL: it could not be opened */
    meg_device *device;
    bool told;    /* how many threads it has; else they are this rank's share of the cores */
    int imagined; /* ranks on a node that are planned for and not there; 0: none (forecast.h) */
    bool probes;  /* where there is no book of prices, the machine may be measured */
    bool priced;  /* `prices` is as it shall be */
    meg_prices *prices;              /* NULL: the built-in book */
    bool foresees;                   /* forecasts are kept (train/outlook/foresight.h) */
    struct meg_foresight *foresight; /* the last one; NULL: none, or another rank has it */
};

/* Collective. Opens a context on ranks that are there already; the communicator becomes its own. NULL: those of the
 * job. As meg_open, sets `out` even on failure. */
meg_status meg_context_open(const char *options, meg_comm *comm, meg_context **out);

struct meg_data {
    meg_context *ctx;
    meg_dataset set;
};

/* Is it what the network was made for? Samples of the shape and kind (images, tokens) that the input takes,
 * labels that the losses compare with, no more classes than they tell apart (fit.c). */
meg_status meg_data_fits(const meg_data *d, const meg_graph *g);
/* The same of samples alone: labels may be missing, or any. */
meg_status meg_data_feeds(const meg_data *d, const meg_graph *g);

/* The same of a data set whose arrays have names. Those that the rank reads nothing of (NULL: it reads all) may
 * be missing, and labels, unless they are asked for. */
struct meg_reading;
meg_status meg_columns_fit(meg_context *ctx, const meg_graph *g, const meg_dataset *d,
                           const struct meg_reading *needed, bool labels);

/* Collective. The status that all ranks then have: OK if all are, else that of the lowest rank that
 * failed, with its message. Every collective call of the public interface ends with this. */
meg_status meg_context_agree(meg_context *ctx, meg_status status);

typedef struct meg_token { /* what must be the same on all ranks */
    const char *what;      /* "another model file" */
    uint64_t value;
} meg_token;

/* Collective. Says which rank has another value than rank 0, and of what. */
meg_status meg_context_same(meg_context *ctx, const meg_token *token, int count);

/* After an error in the middle of a step, of which the others do not know: ends the job with its
 * message. Alone: returns the status. */
meg_status meg_context_end(meg_context *ctx, meg_status status);

/* Collective. Opens the book that plans are made with, once. */
meg_status meg_context_prices(meg_context *ctx);
meg_book_ask meg_context_book(const meg_context *ctx);

/* Not collective. A plan for a rank of a world that need not be this one. */
meg_status meg_context_plan(meg_graph *g, const meg_data *d, const meg_world *world,
                            const char *options, meg_plan **out);

#endif
