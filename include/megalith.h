/* Megalith: trains deep networks too large for one device or one machine.
 *
 * Five nouns in one chain: context -> graph -> plan -> trainer, plus data. Options are strings of
 * `word=value` pairs ("batch=256 micro=4"), checked against tables: an unknown word is an error
 * that lists the known ones; a word without effect is an error if it is about what is learned or
 * kept (nesterov without momentum), else a warning in the log. Functions that can fail return a meg_status; the message, which says
 * what was wrong and what would be right, is in the context (meg_message).
 *
 * Many ranks: a program started by mpirun or srun (or `megalith run -np 4 PROGRAM`) runs on all of
 * them; each makes the same calls. Collective calls end with the same status and message on all
 * ranks; an error of one rank in the middle of a step ends the whole job, with its message.
 *
 * Threads: those that wait for one another spin as libgomp has it, 300,000 times. Where others want the
 * same cores, start the program with GOMP_SPINCOUNT=10000, as the command does for itself.
 *
 * Ownership: parents outlive children: context > graph > plan > trainer, context > data > trainer.
 * Every _free and _close accepts NULL. Strings passed in are copied.
 */
#ifndef MEGALITH_H
#define MEGALITH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum meg_status {
    MEG_OK = 0,
    MEG_EARG,         /* an option, a name or a shape is wrong */
    MEG_EIO,          /* a file could not be read or written */
    MEG_EDATA,        /* a file was read, but its content is not valid */
    MEG_ENOMEM,       /* no memory */
    MEG_EBUDGET,      /* the plan needs more memory than the budget allows */
    MEG_ENAN,         /* the loss is not finite */
    MEG_EINTERRUPTED, /* asked to stop; the trainer is at a whole step */
    MEG_EUNSUPPORTED, /* known, but not possible here */
    MEG_EPEER         /* another rank is lost or does not answer */
} meg_status;

typedef enum meg_dtype {
    MEG_F32 = 0,
    MEG_F64,
    MEG_I32,
    MEG_I64,
    MEG_U8,
    MEG_BOOL
} meg_dtype;
/* A tensor in the caller's memory, row-major without gaps. */
typedef struct meg_tensor {
    const char *name;
    void *data;
    meg_dtype dtype;
    int rank;
    int64_t shape[8];
} meg_tensor;

typedef struct meg_context meg_context;
typedef struct meg_graph meg_graph;
typedef struct meg_data meg_data;
typedef struct meg_plan meg_plan;
typedef struct meg_trainer meg_trainer;
typedef int meg_val; /* a value of a graph; -1 after an error, which later calls pass on */

typedef struct meg_report {
    int64_t step;             /* steps done so far */
    double loss, accuracy;    /* means over the samples of the call; accuracy 0..1, of real targets
                                 NaN */
    double seconds_per_step;  /* median of the call */
    double images_per_second; /* of all ranks together */
    double predicted_seconds_per_step;
    int64_t
        predicted_peak_bytes;    /* of the arena; of the rank that differs most from its prediction,
                                     if none does: of the one that needs most */
    int64_t measured_peak_bytes; /* highest arena byte written, plus 1; of the same rank */
    int64_t peak_rss_bytes;      /* of the largest process */
    double absolute_error;       /* mean over the real targets; of classes NaN */
} meg_report;

/* ---- context ---- */

/* Collective. Opens a context, with MPI if a launcher started this process; MPI can begin only once,
 * so open one context and keep it. Options: device=cpu|ref|ref64|check threads=N seed=N log=LEVEL
 * pin=0|1. `out` is set even on failure, so that meg_message can say why; close it in any case. */
meg_status meg_open(const char *options, meg_context **out);
/* Collective over its ranks. The same on a communicator that the caller has, by its Fortran handle (MPI_Comm_c2f; mpi4py:
 * comm.py2f()): MPI was begun by the caller, who also ends it, after meg_close. Messages go over a copy of it. */
meg_status meg_open_on(const char *options, int comm, meg_context **out);
void meg_close(meg_context *ctx); /* Collective. */

/* Not collective. Ends the whole job with this message on stderr, once where several ranks say the same; does not return. */
void meg_abort(meg_context *ctx, const char *message)
#ifdef __GNUC__
    __attribute__((noreturn))
#endif
    ;

/* Not collective. This process among those of the job: 0 and 1 without a launcher. */
int meg_rank(const meg_context *ctx);
int meg_ranks(const meg_context *ctx);

/* Not collective. The message of the last failed call; "" if none. Owned by the context. */
const char *meg_message(const meg_context *ctx);

/* Not collective. The i-th entry of a registry ("ops", "devices", "readers", "optimizers",
 * "models"); false past its end or for an unknown registry. */
bool meg_list(const char *registry, int i, const char **name, const char **doc);

/* ---- graph ---- */

/* Not collective. An empty graph, to be filled by the calls below and closed by meg_graph_done. */
meg_status meg_graph_new(meg_context *ctx, const char *name, meg_graph **out);

/* Not collective. A network of the zoo: meg_list("models", ...) names them.
 * Options: classes=N image=CxHxW (or CxDxHxW), and those of the model. */
meg_status meg_graph_model(meg_context *ctx, const char *model, const char *options,
                           meg_graph **out);

/* Not collective. The network of an ONNX file, with its weights; the file stays open as long as the
 * graph lives. Options: loss=NAME (and its words, in quotes) or none output=NAME image=CxHxW (where the file leaves the
 * input's extents open) freeze=PATTERNS train=PATTERNS (see meg_graph_freeze) classes_at=auto|first|last (which axis of an output
 * has the classes). A loss is of one output; loss=outside of all, or of the one that is named. What the file lost of the training model is logged as a warning. */
meg_status meg_graph_load(meg_context *ctx, const char *path, const char *options, meg_graph **out);

/* Not collective. An input of a graph, e.g. "Nx1x28x28": N samples of one 28 x 28 channel. "Nx128:i32": whole
 * numbers, ids of tokens or a mask, which have no channels and no gradient. A graph may have several. */
meg_val meg_input(meg_graph *g, const char *name, const char *shape);

/* Not collective. Applies an operator; its weights are made with it. Options: name=PATH and those
 * of the operator (meg_list, `megalith list ops`). An error is kept until meg_graph_done. */
meg_val meg_layer(meg_graph *g, const char *op, const char *options, meg_val x);
meg_val meg_join(meg_graph *g, const char *op, const char *options, int count, const meg_val x[]);

/* Not collective. Adds a loss over `logits`, with its options ("softmax_xent smoothing=0.1 ignore=255") and these:
 * target=NAME, of the labels or targets that it compares with (unless given, "label" or "target"; losses of one
 * name share them, and those without a name, where shapes are equal), weight=X in the sum of several. Accuracy,
 * or absolute error, is of the first. An error is kept until meg_graph_done. */
meg_val meg_graph_loss(meg_graph *g, const char *loss, meg_val logits);

/* Not collective. Ends the graph, with one more such loss, or with NULL. Reports the first error of the chain,
 * if any. */
meg_status meg_graph_done(meg_graph *g, const char *loss, meg_val logits);
int64_t meg_graph_parameters(const meg_graph *g); /* trainable */

/* Not collective. Weights that are not to be trained, or are after all, by patterns over their names
 * ("layer1.*,fc.bias"); before meg_plan_new. A frozen weight has no gradient and no optimizer state,
 * and is saved and loaded as before. A pattern that no weight has is an error, and so is one of
 * meg_graph_train all of whose weights are trained anyway. */
meg_status meg_graph_freeze(meg_graph *g, const char *patterns);
meg_status meg_graph_train(meg_graph *g, const char *patterns);
void meg_graph_free(meg_graph *g);

/* ---- data ---- */

/* Not collective. Opens a data set, "reader:options": "fashion-mnist:split=train",
 * "npy:images=x.npy labels=y.npy", "synthetic:image=3x224x224 classes=1000". */
meg_status meg_data_open(meg_context *ctx, const char *source, meg_data **out);

/* Not collective. A data set over arrays in the caller's memory, which must stay: one for each input and each
 * target of a graph, by their names, shape[0] samples of each. Their shapes are those of the graph's inputs;
 * classes, ids and masks are whole numbers of any type, below 0 where none counts, NaN where no real target
 * counts. Options: name=TEXT, for messages. */
meg_status meg_data_memory(meg_context *ctx, int count, const meg_tensor tensors[],
                           const char *options, meg_data **out);

/* Sample `index` of all arrays, into `out`: as they were announced, but without the first axis. One call at a
 * time, from a thread of the library's. Returns 0; else training ends with an error that names the sample. */
typedef int meg_read(void *user, int64_t index, int count, const meg_tensor out[]);
typedef struct meg_lazy {
    meg_read *read;
    void *user;
} meg_lazy;

/* Not collective. The same, but samples are read when they are wanted: the arrays' `data` are not looked at. */
meg_status meg_data_lazy(meg_context *ctx, int count, const meg_tensor tensors[],
                         const meg_lazy *how, meg_data **out);
int64_t meg_data_count(const meg_data *d);
void meg_data_free(meg_data *d);

/* ---- plan ---- */

/* Collective. Plans the training of a graph on a data set (its count decides the last, partial
 * batch of an epoch; NULL: no such batch); pure, nothing runs. Options: batch=N micro=N norm=N
 * budget=BYTES recompute=auto|none|segments replicas=N stages=N chunks=N schedule=NAME replications=N
 * level=layer|block|module balance=compute|memory assign=NAMES mesh=MESH channels=auto|filter|channel wide=N zero=0|1|3
 * allreduce=NAME bucket=BYTES feed=each|reader keep_grads=0|1 input_grads=0|1 predict=0|1 phases=0|1
 * goal=time|memory|cost|given optimizer=sgd|adam|adamw|rmsprop, and those of the optimizer (docs/cli.md has them all, with their
 * meaning). Each rank plans its own part. On many ranks, words about ranks and memory that are not given are chosen, by goal=:
 * the quickest plan that fits, the one of the least memory, the least ranks x seconds; given: they have their defaults. */
meg_status meg_plan_new(meg_graph *g, const meg_data *d, const char *options, meg_plan **out);
/* Collective. The same, for a trainer with checkpoint=FOLDER: on as many ranks as the newest checkpoint there was made on,
 * and unless `options` say otherwise, with the words that were chosen then. The folder may be empty or missing. */
meg_status meg_plan_resume(meg_graph *g, const meg_data *d, const char *options, const char *folder,
                           meg_plan **out);
int64_t meg_plan_bytes(const meg_plan *p);  /* predicted peak of the arena of this rank */
double meg_plan_seconds(const meg_plan *p); /* predicted seconds per step */
/* Not collective. Does this rank read sample `index` of a batch, or of a smaller one: any input or target of it? */
bool meg_plan_reads(const meg_plan *p, int64_t index);
/* Not collective. Writes "summary" or "program" (every instruction) as text. */
meg_status meg_plan_print(const meg_plan *p, const char *what, FILE *out);
/* Collective. The plan's words as a short text, to be read, edited, and used again for the same network on as many ranks.
 * `options` of meg_plan_load are further words, which may not contradict the file's. */
meg_status meg_plan_save(const meg_plan *p, const char *path);
meg_status meg_plan_load(meg_graph *g, const meg_data *d, const char *path, const char *options,
                         meg_plan **out);
void meg_plan_free(meg_plan *p);

/* ---- trainer ---- */

/* Collective. Makes the plan's arena and weights; refuses ranks with other data. `d` may be NULL: then there is
 * meg_step, but no meg_train. Options: lr=X
 * (unless given 0.1 of sgd, 0.001 of the others) lr_schedule=constant|step|cosine drop=FACTOR drop_every=EPOCHS (step) warmup=EPOCHS
 * epochs=N shuffle=0|1 shift=PIXELS flip=0|1 shard=BYTES; checkpoint=FOLDER checkpoint_every=STEPS
 * keep=N resume=auto|yes|no: training goes on from the newest sound checkpoint of the folder, on any
 * number of ranks, under any plan of the same batch. */
meg_status meg_trainer_new(meg_plan *p, meg_data *d, const char *options, meg_trainer **out);

/* Collective. Trains until `steps` further steps are done (0: to the end of the schedule). */
meg_status meg_train(meg_trainer *t, int64_t steps, meg_report *report);

typedef enum meg_event_kind {
    MEG_EPOCH_BEGINS = 0, /* step: done so far; loss and what follows are not set */
    MEG_STEP_ENDS,
    MEG_EPOCH_ENDS /* loss, accuracy, absolute_error, samples, seconds: of the steps of this epoch in this call */
} meg_event_kind;

typedef struct meg_event {
    meg_event_kind kind;
    int64_t epoch, step, steps;            /* epoch from 0; steps done, and in all */
    double loss, accuracy, absolute_error; /* as in meg_report */
    double lr, seconds;
    int64_t samples;
} meg_event;

/* Returns 0; else training stops in order: meg_train returns MEG_EINTERRUPTED on all ranks, at a whole step (on many ranks
 * up to three later, and one rank's wish is enough). */
typedef int meg_on_event(void *user, const meg_event *event);

/* Not collective. From now on meg_train calls the function, on every rank that has one, in the thread that trains. NULL: no more. */
void meg_watch(meg_trainer *t, meg_on_event *observer, void *user);

/* Collective. Loss and accuracy over all of `d`, in evaluation mode. */
meg_status meg_evaluate(meg_trainer *t, meg_data *d, meg_report *report);

/* Collective. One step on a batch from memory, as meg_data_memory has it: the whole batch of all ranks, shape[0]
 * samples in each tensor. Rows that meg_plan_reads does not have for this rank are not looked at, nor are
 * tensors of which the rank reads nothing: these may be missing. A batch may be smaller than the plan's, unless
 * the network normalises over samples: then the last batch of an epoch, of the data set that the plan was
 * made with, is the only other size. `report` is this step's. MEG_ENAN: the loss is no number. */
meg_status meg_step(meg_trainer *t, int count, const meg_tensor tensors[], meg_report *report);

/* Collective. Loss and accuracy of such a batch, of any size, in evaluation mode: the mean over its samples of what
 * parts of a micro-batch's size have. */
meg_status meg_evaluate_batch(meg_trainer *t, int count, const meg_tensor tensors[],
                              meg_report *report);

/* Not collective, but all ranks set the same. The learning rate of steps to come, in place of the schedule's;
 * below 0: the schedule's. */
void meg_trainer_lr(meg_trainer *t, double lr);

/* Not collective, but all ranks say the same. This trainer goes on where another one ended, after so many steps, which count in adam's
 * rate and in the random numbers of dropout; those are drawn from `seed` from now on (below 0: the context's), which a
 * checkpoint does not keep: whoever goes on from one says it again. */
void meg_trainer_go_on(meg_trainer *t, int64_t step, int64_t seed);

/* Collective. Weights to or from a safetensors file; written beside it, synced, renamed. */
meg_status meg_trainer_save(meg_trainer *t, const char *path);
meg_status meg_trainer_load(meg_trainer *t, const char *path);

/* Collective. Writes a checkpoint now, beside those that training writes by itself; does nothing if
 * the last one is of this step. */
meg_status meg_trainer_checkpoint(meg_trainer *t);

/* Collective. Network and weights as an ONNX file (set 20), for inference: running statistics, no
 * loss; written beside it, synced, renamed. */
meg_status meg_trainer_export(meg_trainer *t, const char *path);
void meg_trainer_free(meg_trainer *t);

/* ---- outputs ---- */

/* Not collective. Outputs of the network: the logits of its losses. Name, type and shape of the i-th, shape[0] the plan's
 * batch, `data` NULL; false past the end. */
int meg_outputs(const meg_trainer *t);
bool meg_output_at(const meg_trainer *t, int i, meg_tensor *out);

/* Collective. What the network makes of all samples of `d`, in evaluation mode; labels are not read. The plan was made
 * with predict=1. `output` has the name of an output (NULL: the first), its type MEG_F32 or MEG_F64, its shape with as many samples
 * as `d` has, and memory, on rank 0; other ranks whose `data` is not NULL get the same. */
meg_status meg_predict(meg_trainer *t, meg_data *d, meg_tensor *output);

/* Collective. A training step for a loss that the caller computes: the graph ends with the loss "outside". Forward in training
 * mode (batch statistics, dropout) gives the outputs, by name (NULL: the first), as meg_predict does. `input` has the whole batch
 * of all ranks, by the names of the inputs; a tensor of which this rank reads nothing (meg_plan_reads) may have `data` NULL. It must stay until meg_backward
 * returns. Where the batch goes in several micro-batches, all go forward first: schedule=gpipe. */
meg_status meg_forward(meg_trainer *t, int inputs, const meg_tensor input[], int outputs,
                       meg_tensor output[]);
/* Collective. Goes back, from rank 0's gradients by the outputs: of the loss of the whole batch, not divided by anything; outputs that
 * are not named have none. Then gradients of weights can be read (keep_grads=1), and the plan's optimizer has updated the weights with the
 * trainer's rate: with lr=0 they stay, for an optimizer outside. Another call that runs the network in between gives the step up,
 * as if it had not been. */
meg_status meg_backward(meg_trainer *t, int outputs, const meg_tensor gradient[]);
/* Collective. The gradient of the same loss by an input (real numbers), by name (NULL: the first), for what comes before the network.
 * It has the input's shape, is MEG_F32 or MEG_F64, and goes to rank 0's memory, and that of other ranks whose `data` is not NULL. After
 * meg_backward, of a plan with input_grads=1. */
meg_status meg_input_gradient(meg_trainer *t, meg_tensor *gradient);

/* ---- tensors by name ----
 *
 * What a trainer holds, whole, row-major, in the shapes that files of weights have, whatever the plan does with it. `what`:
 *
 *     value       all that a file of weights has: the next three
 *     weight      that is trained
 *     statistic   running statistics
 *     fixed       frozen weights, buffers
 *     gradient    of each weight, of the last step: the plan needs keep_grads=1, or several micro-batches
 *     state       of the optimizer, "conv1.weight#momentum"
 */

/* Not collective. How many there are; 0 of an unknown `what`. */
int meg_tensors(const meg_trainer *t, const char *what);
/* Not collective. Name, type and shape of the i-th, `data` NULL; false past the end. The name stays as long as the trainer. */
bool meg_tensor_at(const meg_trainer *t, const char *what, int i, meg_tensor *out);

/* Collective. Reads a tensor into the caller's memory: rank 0's, and that of other ranks whose `data` is not NULL. Its
 * type is MEG_F32 or MEG_F64, whatever the device computes in, its shape the one that meg_tensor_at tells. */
meg_status meg_trainer_get(meg_trainer *t, const char *what, const char *name, meg_tensor *tensor);
/* Collective. Sets a tensor on all ranks to what rank 0 has in `tensor`; that of others is not looked at. Gradients
 * cannot be set. */
meg_status meg_trainer_set(meg_trainer *t, const char *what, const char *name,
                           const meg_tensor *tensor);
/* Collective. The same with several, by the names that they have: ranks meet once, not for each. */
meg_status meg_trainer_get_many(meg_trainer *t, const char *what, int count, meg_tensor tensor[]);
meg_status meg_trainer_set_many(meg_trainer *t, const char *what, int count,
                                const meg_tensor tensor[]);

#ifdef __cplusplus
}
#endif

#endif
