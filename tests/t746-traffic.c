/* Traffic under way: what it may not mix up, and what it leaves behind when it is given up. */
#include "exec/traffic.h"
#include "threads_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum {
    COUNT = 1000,
    SUM = 40, /* tags */
    LATE = 50
};

static meg_device *open_device(void)
{
    meg_error e = {0};
    meg_device *d = NULL;
    OK(&e, meg_device_open(&e, "ref", 1, &d));
    return d;
}

static void doze(void *nothing)
{
    (void)nothing;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

typedef struct sum { /* a reduction over both ranks */
    double data[COUNT], scratch[COUNT];
    meg_reduction_spec spec;
} sum;

static sum *sum_new(const char *algorithm, double value)
{
    sum *s = calloc(1, sizeof *s);
    for (int i = 0; i < COUNT; i++)
        s->data[i] = value;
    s->spec = (meg_reduction_spec){.algorithm = meg_allreduce_find(algorithm),
                                   .ranks = 2,
                                   .data = {s->data, COUNT, MEG_NUMBER_F64},
                                   .scratch = s->scratch,
                                   .tag = SUM};
    return s;
}

static meg_traffic_item sum_item(sum *s, uint64_t after)
{
    return (meg_traffic_item){.code = MEG_REDUCE,
                              .tag = s->spec.tag,
                              .host = s->data,
                              .bytes = sizeof s->data,
                              .after = after,
                              .reduce = &s->spec,
                              .what = "sum"};
}

/* The same reduction of two micro-batches: on rank 0 the second could start first. */
static void reduce_twice(meg_comm *c, void *argument)
{
    (void)argument;
    meg_error e = {0};
    meg_device *d = open_device();
    meg_traffic_list *t = meg_traffic_new(c, d, NULL);
    sum *s[2];
    if (meg_comm_rank(c) == 0) meg_device_call(d, doze, NULL);
    for (int i = 0; i < 2; i++) {
        s[i] = sum_new("ring", (meg_comm_rank(c) + 1) * (i ? 10 : 1));
        meg_traffic_item item = sum_item(s[i], i == 0 ? meg_device_look(d).put : 0);
        meg_traffic_add(t, &item);
    }
    while (!meg_traffic_idle(t))
        OK(&e, meg_traffic_wait(t, &e));
    for (int i = 0; i < 2; i++) {
        double want = i ? 30 : 3;
        REQUIRE(s[i]->data[COUNT - 1] == want, "micro-batch %d: %g instead of %g", i,
                s[i]->data[COUNT - 1], want);
        free(s[i]);
    }
    meg_traffic_free(t);
    meg_device_close(d);
}

static void test_same_tag(void **state)
{
    (void)state;
    run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = true}, reduce_twice, NULL);
}

typedef struct way { /* of communicating */
    const char *algorithm;
    bool rendezvous;
} way;

/* Rank 0 gives up; its memory is no longer written to, nor read. Nothing leaks. */
static void give_up(meg_comm *c, void *argument)
{
    meg_error e = {0};
    const way *w = argument;
    int rank = meg_comm_rank(c);
    meg_device *d = open_device();
    meg_traffic_list *t = meg_traffic_new(c, d, NULL);
    sum *s = sum_new(w->algorithm, 1);
    double *here = calloc(COUNT, sizeof *here), *there = calloc(COUNT, sizeof *there);
    bool moved, kept = rank == 0;
    for (int i = 0; i < COUNT; i++)
        here[i] = there[i] = rank;
    if (rank == 1) OK(&e, meg_comm_barrier(c, &e)); /* rank 0 has left */
    meg_traffic_item item[] = {{.code = rank ? MEG_SEND : MEG_RECV,
                                .peer = 1 - rank,
                                .tag = LATE,
                                .host = here,
                                .bytes = COUNT * sizeof *here,
                                .what = "late"},
                               {.code = rank ? MEG_RECV : MEG_SEND,
                                .peer = 1 - rank,
                                .tag = LATE + 1,
                                .host = there,
                                .bytes = COUNT * sizeof *there,
                                .what = "late"},
                               sum_item(s, 0)};
    for (int i = 0; i < 3; i++)
        meg_traffic_add(t, &item[i]);
    OK(&e, meg_traffic_advance(t, &e, &moved));
    REQUIRE(!meg_traffic_idle(t), "all is done");
    meg_traffic_free(t);
    if (rank == 0) OK(&e, meg_comm_barrier(c, &e));
    OK(&e, meg_comm_barrier(c, &e));
    for (int i = 0; i < COUNT; i++)
        kept = kept && here[i] == 0 && s->data[i] == 1;
    REQUIRE(rank == 1 || kept, "%s: memory of a message that was given up has changed",
            w->algorithm);
    REQUIRE(rank == 0 || !w->rendezvous || there[0] == 1, "%s: what was given up was received",
            w->algorithm);
    free(here);
    free(there);
    free(s);
    meg_device_close(d);
}

static void test_give_up(void **state)
{
    (void)state;
    way ways[] = {{"ring", false}, {"ring", true}, {"mpi", false}, {"mpi", true}};
    for (int i = 0; i < 4; i++)
        run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = ways[i].rendezvous}, give_up,
                  &ways[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tag),
                                       cmocka_unit_test(test_give_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
