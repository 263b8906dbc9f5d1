/* Devices: who runs kernels, and what a plan must know of them.
 *
 * A *request* names one piece of work: an instruction with the boxes of its operands. `describe`
 * answers with a *spec*, pure data: formats, bytes, and how much work it is; what that costs, a book
 * of prices knows (machine/prices.h). `prepare` makes a kernel of it, `launch` runs the kernel
 * asynchronously, in order, on the device's queue. Planning uses `describe` alone. What a device does
 * not have itself, the op's plain C serves.
 */
#ifndef MEG_DEVICE_DEVICE_H
#define MEG_DEVICE_DEVICE_H

#include "graph/format.h"
#include "graph/op.h"
#include "ops/optimizer/optimizer.h"

struct meg_prices; /* machine/prices.h */

typedef enum meg_code { /* instructions; docs/design.md says more of each */
    MEG_LOAD,           /* input or label from the data set      (the engine) */
    MEG_KERNEL,         /* a pass of a node                                   */
    MEG_COPY,           /* X0 -> Y where their boxes meet, between formats     */
    MEG_ADD,            /* Y = X0 + X1, like boxes and formats; Y may be X0, X1 another box */
    MEG_ZERO,           /* Y = 0                                               */
    MEG_UPDATE,         /* optimizer: X0 weight and AUX states in place, X1 gradient, X2 scalars */
    MEG_FREE,           /* the slot of X0 is dead                              */
    MEG_SEND,           /* X0 to another rank                     (the engine) */
    MEG_RECV,           /* Y from another rank                    (the engine) */
    MEG_REDUCE,         /* Y = sum of the X0 (= Y) of all ranks of a team      (the engine) */
    MEG_CODES
} meg_code;

typedef struct meg_request {
    meg_code code;
    const meg_graph *graph;
    const meg_node *node; /* KERNEL; COPY of a weight: the node that uses it; else NULL */
    meg_pass pass;
    meg_work work;
    const meg_optimizer *optimizer; /* of the plan; UPDATE: with its settings */
    const void *settings;
    meg_box box[MEG_OPERANDS];
    meg_dtype dtype[MEG_OPERANDS];
    meg_format format[MEG_OPERANDS]; /* what there is: of X, Y as stored, of DY */
    int64_t bytes[MEG_OPERANDS];     /* as stored: of the operands of COPY, ADD, ZERO and UPDATE */
} meg_request;

/* What a kernel wants and costs. Formats of read operands are wishes: the plan copies where it has
 * another. Those of written operands are facts. */
typedef struct meg_spec {
    meg_format format[MEG_OPERANDS];
    int64_t bytes[MEG_OPERANDS]; /* of scratch and weight formats; 0: meg_format_bytes of the box */
    meg_mask in_place; /* which of Y, DX may lie on X0, DY respectively (same box and format) */
    meg_mask shared;   /* DX operands that equal one another: one slot serves (add) */
    meg_mask exact;    /* operands whose box must be just what the work needs or makes, no more */
    bool second_dy;    /* takes a second gradient to be added to DY, in operand MEG_DY + 1 */
    double flops, traffic; /* operations, bytes read and written, as this implementation does it */
    char impl[48];         /* "jit:avx2", "own:avx512", "plain" */
} meg_spec;

typedef struct meg_device meg_device;
typedef struct meg_prepared meg_prepared; /* a kernel, ready to launch */

typedef struct meg_device_kind {
    const char *name, *doc;
    meg_dtype real;
    /* Kinds share the queue, the arena and the plain-C path (device/device.c) and add: */
    void *(*open)(meg_device *d, meg_error *e); /* NULL with e->status set on error; may be NULL */
    void (*close)(void *state);
    bool (*describe)(meg_device *d, const meg_request *r, meg_spec *s); /* false: plain C serves */
    /* false: as describe. Sets run, own, free_own. */
    bool (*prepare)(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out);
    void (*released)(meg_device *d, void *memory, int64_t bytes); /* on FREE; may be NULL */
    void (*before)(meg_device *d); /* each kernel and each transfer, on its worker; may be NULL */
    bool far; /* its memory is out of the host's reach: messages go through staging */
} meg_device_kind;

struct meg_prepared {
    meg_request request;
    meg_spec spec;
    /* Runs on the worker thread. `at[operand]` is its memory, NULL if absent. */
    void (*run)(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m);
    void *own; /* of the device kind */
    void (*free_own)(void *own);
};

/* The descriptors, one in each file of devices.def: `const meg_device_kind meg_device_ref = ...` */
#define MEG_DEVICE(id) extern const meg_device_kind meg_device_##id;
#include "device/devices.def"
#undef MEG_DEVICE

const meg_device_kind *meg_device_kind_find(const char *name);
const meg_device_kind *meg_device_kind_at(int i);

/* `threads` 0: one per processor that this process may use. A device serves one thread at a time;
 * work on its queue calls none of the functions that wait (wait, a full queue). */
meg_status meg_device_open(meg_error *e, const char *kind, int threads, meg_device **out);
void meg_device_close(meg_device *d); /* waits first */
const meg_device_kind *meg_device_kind_of(const meg_device *d);
int meg_device_threads(const meg_device *d);
void *meg_device_state(const meg_device *d); /* what kind->open returned */
meg_dtype meg_device_real(const meg_device *d);

void meg_device_describe(meg_device *d, const meg_request *r, meg_spec *s);
meg_status meg_device_prepare(meg_device *d, meg_error *e, const meg_request *r,
                              meg_prepared **out);
void meg_prepared_free(meg_prepared *k); /* after the last launch of it is done */

const char *meg_code_name(meg_code c);

/* Which operands a request reads and writes, absent ones included; UPDATE's X0 and AUX are both. */
meg_mask meg_request_reads(const meg_request *r);
meg_mask meg_request_writes(const meg_request *r);

/* The box of an operand that just covers what the work needs of it or makes of it. */
meg_box meg_request_exact(const meg_request *r, int operand);

/* Bytes of an operand: what the spec says, else those of its box; 0 if absent. */
int64_t meg_operand_bytes(const meg_request *r, const meg_spec *s, int operand);

double meg_request_flops(const meg_request *r); /* as its operator counts; of others 0 */
/* Bytes that a request reads and writes, each operand as often as it does so, those of `again` once
 * more. */
double meg_request_traffic(const meg_request *r, const meg_spec *s, meg_mask again);

/* What a book of prices knows a kernel by (device/price.c). */
enum {
    MEG_KEY = 1024
};

typedef struct meg_kernel_work { /* of a spec, as the plan keeps it */
    double flops, traffic;
    const char *impl;
} meg_kernel_work;

/* "conv fwd jit:avx2"; "sgd update own:avx2" */
void meg_request_family(const meg_request *r, const char *impl, char text[MEG_KEY]);
/* The family, attributes, extents, formats: kernels of one key take the same time. */
void meg_request_key(const meg_request *r, const char *impl, char text[MEG_KEY]);
/* The traffic of a spec, and that of a second gradient, which a spec does not know of. */
double meg_request_moved(const meg_request *r, double traffic);
double meg_request_seconds(const meg_request *r, const meg_kernel_work *w,
                           const struct meg_prices *prices);

/* The plain-C path (device/plain.c), which serves what a kind leaves to it. Kernels and copies want
 * plain formats; ADD, ZERO and UPDATE take any, since they see elements only. Where a kind has
 * described such an instruction (bytes of a weight format) and does not prepare it, this does. */
void meg_plain_describe(const meg_request *r, meg_spec *s);
meg_status meg_plain_prepare(meg_device *d, meg_error *e, const meg_request *r, meg_prepared *out);

/* What an arena is filled with to be measured. No number of ours ends in this byte: it would be larger
 * than 1e38. (Rounding errors leave gradients of 1e-16, and any other size that is small.) */
enum {
    MEG_FILL = 0x7F
};

/* The arena: the memory of a plan on a device. Above device/ there are *places*, offsets into it, never
 * addresses: its bytes are the device's, and all that reaches them is below. Calls are asynchronous,
 * in order with one another and with launches, unless they say that they wait.
 *
 *     kind shares memory     place ---------> bytes of the arena
 *     kind is far            place ---------> bytes that only workers reach
 *                              \--staging---> bytes of the host, for messages and loads
 */
typedef struct meg_arena meg_arena;

typedef struct meg_stretch { /* places, half-open */
    int64_t from, to;
} meg_stretch;

/* What messages and loads touch of an arena. A far device has as many bytes of the host's memory for
 * them: the stretches, one behind the other. */
typedef struct meg_staging {
    int stretches;
    meg_stretch *stretch; /* ascending, no two of them touch */
    int64_t bytes;        /* of all */
} meg_staging;

typedef struct meg_arena_spec {
    int64_t bytes;
    int fill; /* written to every byte first, so that what was touched can be told; 0 leaves fresh
                 pages as they are: zeros not yet in memory, where memory is poisoned NaN */
    const meg_staging *staging; /* of a far device; NULL: nothing; copied */
} meg_arena_spec;

/* One mapping with a no-access page behind its last byte (rounded up to pages). */
meg_status meg_arena_new(meg_device *d, meg_error *e, const meg_arena_spec *spec, meg_arena **out);
void meg_arena_free(meg_arena *a);       /* waits first */
int64_t meg_arena_touched(meg_arena *a); /* the last byte that is not `fill`, plus 1; waits */
int64_t
meg_arena_most(void); /* bytes of all arenas of a machine: its memory, with what it may swap */

void meg_arena_launch(meg_arena *a, const meg_prepared *k, const int64_t at[MEG_OPERANDS],
                      const meg_moment *m); /* at: -1 for absent operands */
void meg_arena_fill(meg_arena *a, int64_t at, int64_t bytes, int byte);
void meg_arena_copy(meg_arena *a, int64_t to, int64_t from, int64_t bytes);
void meg_arena_read(meg_arena *a, int64_t at, int64_t bytes,
                    void *to);                                   /* `to` must stay until done */
void meg_arena_release(meg_arena *a, int64_t at, int64_t bytes); /* on FREE */

/* `load` sets all bytes of a place that lies in the staging; it runs on the worker. */
typedef void meg_filler(void *argument, void *to);
void meg_arena_load(meg_arena *a, const meg_stretch *place, meg_filler *load, void *argument);

/* A place as the host sees it between map and unmap: the bytes themselves, else a copy. Both wait. */
typedef struct meg_mapping {
    int64_t at, bytes;
    bool reads, writes; /* what is in it at first; what is in it at last */
    void *data;         /* set by map */
} meg_mapping;

void meg_arena_map(meg_arena *a, meg_mapping *m);
void meg_arena_unmap(meg_arena *a, meg_mapping *m);

/* A box in a format of the device's, to or from plain numbers of the host. Both wait. */
typedef struct meg_formatted {
    const meg_graph *graph;
    const meg_node *node; /* of a weight format: a node that uses the weight; else NULL */
    meg_box box;
    meg_dtype dtype;
    meg_format format;
    int64_t at, bytes;
} meg_formatted;

void meg_arena_get(meg_arena *a, const meg_formatted *f, void *plain);
void meg_arena_put(meg_arena *a, const meg_formatted *f, const void *plain);

/* Messages. `staging`: the host's bytes of a place, for as long as the arena lives; on kinds that share
 * memory the place itself. `fetch` brings a place there, `store` brings it back, on a queue of their own
 * that does not wait for launches; each is done when `reached` says so of the number that it gave. */
void *meg_arena_staging(meg_arena *a, int64_t at);
uint64_t meg_arena_fetch(meg_arena *a, int64_t at, int64_t bytes);
uint64_t meg_arena_store(meg_arena *a, int64_t at, int64_t bytes);
bool meg_arena_reached(meg_arena *a, uint64_t number);

/* The queue: in order, asynchronous. Kernels on memory of the host, for kinds that share it. */
void meg_device_launch(meg_device *d, const meg_prepared *k, void *const at[MEG_OPERANDS],
                       const meg_moment *m);
void meg_device_call(meg_device *d, void (*function)(void *), void *argument); /* host work */
void meg_device_wait(meg_device *d); /* sleeps until all queues are empty */

typedef struct meg_pace { /* of the queue */
    uint64_t put, done;   /* items so far; they are done in order */
    bool room;            /* the next one does not have to wait */
    bool moving;          /* fetches or stores are under way */
} meg_pace;

meg_pace meg_device_look(meg_device *d);

/* `wake` is called, on a worker, once `done` of them are done (0: never), when a full queue has room
 * again, and when fetches and stores under way are done. It must not wait. NULL: nobody watches. */
void meg_device_watch(meg_device *d, uint64_t done, void (*wake)(void *), void *context);
bool meg_device_releases(const meg_device *d); /* does meg_arena_release do anything? */

/* Times every launch when on: seconds of each kernel, by its request (bench --kernels, --trace). */
typedef void meg_observer(void *context, const meg_prepared *k, double start, double seconds);
void meg_device_observe(meg_device *d, meg_observer *observer, void *context);
/* By which clock: meg_clock_thread is the worker's own. NULL: meg_clock. */
void meg_device_clock(meg_device *d, double (*clock)(void));

#endif
