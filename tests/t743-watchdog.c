/* A rank that never comes: the others say so after the watchdog's time, and name what they wait for.
 * Messages stay under way, so the process ends without tidying up, as a job would.
 */
#include "network.h"

#include <pthread.h>
#include <unistd.h>

typedef struct place {
    meg_comm *comm;
    const meg_graph *graph;
} place;

static void die(const char *what)
{
    fprintf(stderr, "FAILED: %s\n", what);
    _exit(1);
}

/* Rank 1 makes its engine and is not heard of again. */
static void *rank(void *argument)
{
    place *p = argument;
    meg_error e = {0};
    meg_device *d = NULL;
    meg_plan *plan = NULL;
    meg_engine *x = NULL;
    meg_world world = {meg_comm_rank(p->comm), 2};
    if (meg_device_open(&e, "ref", 1, &d) != MEG_OK) die(e.message);
    meg_profile profile = meg_profile_of(d);
    const char *words = "batch=4 norm=2 stages=2 micro=2";
    if (meg_plan_make_for(p->graph, &e, &profile, &world, words, 0, &plan) != MEG_OK)
        die(e.message);
    if (meg_engine_new(plan, d, p->comm, &e, 0, &x) != MEG_OK) die(e.message);
    if (world.rank == 1) pause();
    meg_feed f;
    meg_outcome o;
    meg_engine_start(x, 1);
    meg_engine_watchdog(x, 0.5);
    network_feed(p->graph, 4, &f);
    meg_status status = meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &f, &o);
    fprintf(stderr, "%s\n", e.message);
    if (status != MEG_EPEER) die("expected MEG_EPEER");
    if (!strstr(e.message, "rank 0 ") || !strstr(e.message, "rank 1") ||
        !strstr(e.message, "of micro-batch 0"))
        die("the message names too little");
    _exit(0);
}

int main(void)
{
    meg_error e;
    meg_comm *comm[2];
    pthread_t thread[2];
    place p[2];
    meg_graph *g = network_zoo("resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8");
    if (meg_comm_threads(&e, &(meg_threads_options){.ranks = 2, .rendezvous = true}, comm) !=
        MEG_OK)
        die(e.message);
    for (int r = 0; r < 2; r++) {
        p[r] = (place){comm[r], g};
        if (pthread_create(&thread[r], NULL, rank, &p[r])) die("no thread");
    }
    sleep(20);
    die("the watchdog slept");
}
