/* One rank and no MPI: nobody to talk to, but waiting for the device still sleeps. */
#include "comm/kind.h"
#include "comm/waker.h"

#include <assert.h>
#include <stdlib.h>

typedef struct alone {
    meg_comm base;
    meg_waker waker;
} alone;

static const meg_comm_kind KIND;
static const int NODE[1] = {0};

/* comm.c lets no message pass: there is no other rank. */
static meg_status send_none(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                            int64_t bytes, meg_letter **out)
{
    (void)c, (void)peer, (void)tag, (void)data, (void)bytes, (void)out;
    return meg_fail(e, MEG_EARG, "one rank alone has nobody to send to");
}

static meg_status recv_none(meg_comm *c, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                            meg_letter **out)
{
    (void)c, (void)peer, (void)tag, (void)data, (void)bytes, (void)out;
    return meg_fail(e, MEG_EARG, "one rank alone has nobody to receive from");
}

static meg_status test(meg_comm *c, meg_error *e, meg_letter **m, bool *done)
{
    (void)c, (void)e, (void)m;
    *done = true;
    return MEG_OK;
}

static void drop(meg_comm *c, meg_letter *m)
{
    (void)c, (void)m; /* there are none */
}

static meg_status sleep_alone(meg_comm *c, meg_error *e, double seconds)
{
    (void)e;
    meg_waker_sleep(&((alone *)c)->waker, seconds);
    return MEG_OK;
}

static void wake(meg_comm *c)
{
    meg_waker_wake(&((alone *)c)->waker);
}

static meg_status allreduce(meg_comm *c, meg_error *e, const meg_numbers *data, meg_combine combine,
                            meg_letter **out)
{
    (void)c, (void)e, (void)data, (void)combine;
    *out = NULL; /* done: the sum over one rank is there already */
    return MEG_OK;
}

static meg_status split(meg_comm *c, meg_error *e, int colour, meg_comm **out)
{
    (void)c;
    if (colour >= 0) return meg_comm_alone(e, out);
    *out = NULL;
    return MEG_OK;
}

static __attribute__((noreturn)) void end(meg_comm *c, int code)
{
    (void)c;
    _Exit(code);
}

static void alone_free(meg_comm *c)
{
    meg_waker_close(&((alone *)c)->waker);
    free(c);
}

static const meg_comm_kind KIND = {
    .send = send_none,
    .recv = recv_none,
    .test = test,
    .drop = drop,
    .sleep = sleep_alone,
    .wake = wake,
    .allreduce = allreduce,
    .split = split,
    .abort = end,
    .free = alone_free,
};

meg_status meg_comm_alone(meg_error *e, meg_comm **out)
{
    alone *a = calloc(1, sizeof *a);
    MEG_CHECK(e, a, MEG_ENOMEM, "no memory for a communicator");
    a->base = (meg_comm){
        .kind = &KIND, .size = 1, .nodes = 1, .tags = 32768, .node = NODE, .library = "alone"};
    meg_waker_open(&a->waker);
    *out = &a->base;
    return MEG_OK;
}
