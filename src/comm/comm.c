/* The front of all kinds: arguments are checked here, once. */
#include "comm/kind.h"

#include <assert.h>
#include <stdio.h>

int meg_comm_rank(const meg_comm *c)
{
    return c->rank;
}

int meg_comm_size(const meg_comm *c)
{
    return c->size;
}

int meg_comm_nodes(const meg_comm *c)
{
    return c->nodes;
}

const int *meg_comm_node(const meg_comm *c)
{
    return c->node;
}

const char *meg_comm_library(const meg_comm *c)
{
    return c->library;
}

int meg_comm_tags(const meg_comm *c)
{
    return c->tags - MEG_COMM_OWN_TAGS;
}

static meg_status check(const meg_comm *c, meg_error *e, int peer, int tag, int64_t bytes)
{
    MEG_CHECK(e, peer >= 0 && peer < c->size && peer != c->rank, MEG_EARG,
              "rank %d of %d cannot exchange a message with rank %d: only with another of them",
              c->rank, c->size, peer);
    MEG_CHECK(e, tag >= 0 && tag < c->tags, MEG_EARG, "a message with tag %d: use 0..%d", tag,
              meg_comm_tags(c) - 1);
    MEG_CHECK(e, bytes >= 0, MEG_EARG, "a message of %lld bytes", (long long)bytes);
    return MEG_OK;
}

meg_status meg_comm_send(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                         int64_t bytes, meg_letter **out)
{
    MEG_TRY(e, check(c, e, peer, tag, bytes));
    return c->kind->send(c, e, peer, tag, data, bytes, out);
}

meg_status meg_comm_recv(meg_comm *c, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                         meg_letter **out)
{
    MEG_TRY(e, check(c, e, peer, tag, bytes));
    return c->kind->recv(c, e, peer, tag, data, bytes, out);
}

meg_status meg_comm_test(meg_comm *c, meg_error *e, meg_letter **m, bool *done)
{
    *done = !*m;
    return *m ? c->kind->test(c, e, m, done) : MEG_OK;
}

void meg_comm_drop(meg_comm *c, meg_letter **m)
{
    if (*m) c->kind->drop(c, *m);
    *m = NULL;
}

meg_status meg_comm_wait(meg_comm *c, meg_error *e, meg_letter **m)
{
    bool done;
    for (;;) {
        MEG_TRY(e, meg_comm_test(c, e, m, &done));
        if (done) return MEG_OK;
        MEG_TRY(e, meg_comm_sleep(c, e, 1));
    }
}

meg_status meg_comm_sleep(meg_comm *c, meg_error *e, double seconds)
{
    return c->kind->sleep(c, e, seconds);
}

meg_status meg_comm_doze(meg_comm *c, meg_error *e, double seconds)
{
    return c->kind->doze ? c->kind->doze(c, e, seconds) : c->kind->sleep(c, e, seconds);
}

void meg_comm_crowd(meg_comm *c)
{
    c->crowded = true;
}

void meg_comm_wake(meg_comm *c)
{
    c->kind->wake(c);
}

meg_status meg_comm_allreduce_native(meg_comm *c, meg_error *e, const meg_numbers *data,
                                     meg_combine combine, meg_letter **out)
{
    assert(data->count >= 0);
    return c->kind->allreduce(c, e, data, combine, out);
}

meg_status meg_comm_split(meg_comm *c, meg_error *e, int colour, meg_comm **out)
{
    return c->kind->split(c, e, colour, out);
}

void meg_comm_abort(meg_comm *c, int code, const char *why)
{
    if (c->size > 1) fprintf(stderr, "megalith: rank %d: %s\n", c->rank, why);
    else fprintf(stderr, "megalith: %s\n", why);
    fflush(NULL);
    c->kind->abort(c, code);
}

void meg_comm_free(meg_comm *c)
{
    if (c) c->kind->free(c);
}
