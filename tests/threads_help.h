/* Ranks as threads in a test: each runs the same function with a communicator of its own. */
#ifndef TESTS_THREADS_HELP_H
#define TESTS_THREADS_HELP_H

#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* cmocka's own checks jump out of the test, which only its first thread may. */
#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: not so: %s; ", __FILE__, __LINE__, #condition);                    \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        abort();                                                                                   \
    } while (0)

#define OK(e, call) REQUIRE((call) == MEG_OK, "%s", (e)->message)

typedef void rank_function(meg_comm *c, void *argument);

typedef struct rank_thread {
    meg_comm *comm;
    rank_function *run;
    void *argument;
    pthread_t thread;
} rank_thread;

static inline void *rank_main(void *argument)
{
    rank_thread *t = argument;
    t->run(t->comm, t->argument);
    meg_comm_free(t->comm);
    return NULL;
}

static inline void run_ranks(const meg_threads_options *o, rank_function *run, void *argument)
{
    meg_error e = {0};
    meg_comm **comm = calloc((size_t)o->ranks, sizeof(meg_comm *));
    rank_thread *t = calloc((size_t)o->ranks, sizeof *t);
    OK(&e, meg_comm_threads(&e, o, comm));
    for (int r = 0; r < o->ranks; r++) {
        t[r] = (rank_thread){.comm = comm[r], .run = run, .argument = argument};
        REQUIRE(pthread_create(&t[r].thread, NULL, rank_main, &t[r]) == 0, "no thread");
    }
    for (int r = 0; r < o->ranks; r++)
        pthread_join(t[r].thread, NULL);
    free(t);
    free(comm);
}

#endif
