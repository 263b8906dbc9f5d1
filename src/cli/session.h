/* What a command opens on the way from its arguments to a trainer:
 *
 *     context -> data -> graph -> plan -> trainer
 *
 * Each function makes one of them with the words of the command line; their messages end up in the
 * command's error. The members are there as soon as they are made, for whoever looks inside.
 *
 * On many ranks all run the command; these functions end on all of them with the same status.
 */
#ifndef MEG_CLI_SESSION_H
#define MEG_CLI_SESSION_H

#include "cli/command.h"
#include "cli/needs.h"
#include "cli/report/record.h"
#include "train/forecast.h"
#include "train/trainer.h"
#include "zoo/zoo.h"

typedef struct meg_session {
    const meg_arguments *arguments;
    meg_error *error;
    meg_context *ctx;
    meg_data *data;  /* what is trained on; NULL: nothing */
    bool unlabelled; /* what labels the data have, if any, does not matter */
    meg_graph *graph;
    meg_plan *plan;
    bool table;            /* forecasts of imaginary ranks tell every alternative */
    meg_forecast forecast; /* of imaginary ranks */
    meg_trainer *trainer;
    meg_need *needs; /* of all ranks; NULL: not known yet */
    int classes;     /* of imaginary ranks, whose messages were proven to match; 0: not looked at */
    meg_zoo_common model; /* image and classes of the graph */
} meg_session;

/* The context; refuses an unknown MODEL (the first place) at once. Close it in any case. */
meg_status meg_session_open(meg_session *s, const meg_arguments *a, meg_error *e);
void meg_session_close(meg_session *s);

meg_status meg_session_data(meg_session *s, const char *source, meg_data **out);

/* The graph; image and classes are those of `s->data`, if there is any, unless they were given. */
meg_status meg_session_graph(meg_session *s);

/* May these data be used with this graph? Names what does not fit. */
meg_status meg_session_fits(meg_session *s, const meg_data *d);

typedef struct meg_wording { /* of a plan */
    const char *plan;        /* its file or name; NULL: neither */
    const char *more;        /* words of the command besides those that were given */
    int ranks;
} meg_wording;

/* The words of a plan file or a plan with a name, of the command line and of the command, as one text. */
meg_status meg_session_words(meg_session *s, const meg_wording *w, const char **out);

/* `more`: words of the command besides those that were given. */
meg_status meg_session_plan(meg_session *s, const char *more);

/* The plan for a rank of imaginary ones, in place of the one before. */
meg_status meg_session_plan_for(meg_session *s, const meg_world *world);
meg_status meg_session_plan_turn(meg_session *s,
                                 int rank); /* the same job's plan of another rank */
meg_status meg_session_trainer(meg_session *s, const char *more);

/* Weights to a safetensors file, network and weights to an ONNX file: its name decides. */
meg_status meg_session_save(meg_session *s, const char *path);

/* All ranks then have the same status and message: after what each does for itself. */
meg_status meg_session_agree(meg_session *s, meg_status status);

/* The first rank shows progress and writes files. (Results on stdout need not ask.) */
bool meg_session_speaks(const meg_session *s);

/* Does any rank say so? */
meg_status meg_session_any(meg_session *s, bool mine, bool *any);

/* Passes the status of a library call on, and its message to the command's error. */
meg_status meg_session_said(meg_session *s, meg_status status);

/* What every record says of a plan: model, batch, device, parameters, predictions. */
void meg_session_record(const meg_session *s, meg_record *r);

#endif
