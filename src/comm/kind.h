/* What a kind of communicator must do, and what a plug-in shows. Only for the files of this folder.
 * comm.c checks the arguments; a kind sees peers other than itself, tags and sizes in range.
 *
 * A plug-in is its own library with its own copy of base/: what crosses the border is this table,
 * statuses, and memory of the one malloc.
 */
#ifndef MEG_COMM_KIND_H
#define MEG_COMM_KIND_H

#include "comm/comm.h"

enum {
    MEG_COMM_OWN_TAGS = 1, /* the highest tags are for the collective calls */
};

typedef struct meg_comm_kind {
    meg_status (*send)(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                       int64_t bytes, meg_letter **out);
    meg_status (*recv)(meg_comm *c, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                       meg_letter **out);
    meg_status (*test)(meg_comm *c, meg_error *e, meg_letter **m, bool *done);
    void (*drop)(meg_comm *c, meg_letter *m); /* frees it, done or not */
    meg_status (*sleep)(meg_comm *c, meg_error *e, double seconds);
    meg_status (*doze)(meg_comm *c, meg_error *e, double seconds); /* NULL: as sleep */
    void (*wake)(meg_comm *c);
    meg_status (*allreduce)(meg_comm *c, meg_error *e, const meg_numbers *data, meg_combine combine,
                            meg_letter **out);
    meg_status (*split)(meg_comm *c, meg_error *e, int colour, meg_comm **out);
    __attribute__((noreturn)) void (*abort)(meg_comm *c, int code);
    void (*free)(meg_comm *c);
} meg_comm_kind;

struct meg_comm { /* the first member of each kind's own struct */
    const meg_comm_kind *kind;
    int rank, size, nodes, tags; /* tags: with the own ones */
    const int *node;             /* (size); the kind frees it */
    const char *library;         /* lives as long as the communicator */
    bool crowded; /* more ranks than processors: who waits should sleep soon (meg_comm_crowd) */
};

/* The one symbol of a plug-in. */
typedef struct meg_comm_plugin {
    const char *version; /* MEG_VERSION of its build: a stale plug-in is refused */
    int64_t layout;      /* MEG_COMM_LAYOUT, for the same reason */
    meg_status (*open)(meg_error *e, meg_comm **out);
    meg_status (*open_on)(meg_error *e, int fortran, meg_comm **out);
} meg_comm_plugin;

#define MEG_COMM_LAYOUT                                                                            \
    ((int64_t)(sizeof(meg_comm) + 256 * sizeof(meg_comm_kind) + 65536 * sizeof(meg_comm_plugin)))
#define MEG_COMM_PLUGIN "meg_comm_plugin_mpi"

#endif
