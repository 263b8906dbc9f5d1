/* Collective calls, written once over messages, so that waiting in them sleeps and all kinds behave
 * alike. Binomial trees; ranks are counted from the root:
 *
 *     0 <- 1   2 <- 3   4 <- 5   6 <- 7        gather, upwards: rank r holds [r, r + width)
 *     0 <----- 2        4 <----- 6
 *     0 <-------------- 4                      share: the same, downwards
 *
 * All use the one tag that is kept for them: between two ranks messages stay in order, and all
 * ranks make the same calls in the same order.
 */
#include "comm/kind.h"

#include <stdlib.h>
#include <string.h>

static int own_tag(const meg_comm *c)
{
    return c->tags - 1;
}

static meg_status give(meg_comm *c, meg_error *e, int peer, const void *data, int64_t bytes)
{
    meg_letter *m = NULL;
    MEG_TRY(e, meg_comm_send(c, e, peer, own_tag(c), data, bytes, &m));
    return meg_comm_wait(c, e, &m);
}

static meg_status take(meg_comm *c, meg_error *e, int peer, void *data, int64_t bytes)
{
    meg_letter *m = NULL;
    MEG_TRY(e, meg_comm_recv(c, e, peer, own_tag(c), data, bytes, &m));
    return meg_comm_wait(c, e, &m);
}

meg_status meg_comm_share(meg_comm *c, meg_error *e, int root, void *data, int64_t bytes)
{
    MEG_CHECK(e, root >= 0 && root < c->size, MEG_EARG, "root %d: use a rank of 0..%d", root,
              c->size - 1);
    int me = (c->rank - root + c->size) % c->size, width = 1;
    while (width < c->size)
        width *= 2;
    for (width /= 2; width >= 1; width /= 2) {
        if (me % width != 0) continue;
        if (me % (2 * width) != 0)
            MEG_TRY(e, take(c, e, (me - width + root) % c->size, data, bytes));
        else if (me + width < c->size)
            MEG_TRY(e, give(c, e, (me + width + root) % c->size, data, bytes));
    }
    return MEG_OK;
}

meg_status meg_comm_gather(meg_comm *c, meg_error *e, const void *mine, int64_t bytes, void *all)
{
    char *table = all;
    if (bytes > 0) memmove(table + c->rank * bytes, mine, (size_t)bytes);
    for (int width = 1; width < c->size; width *= 2) {
        int left = c->size - c->rank;
        if (c->rank % (2 * width) != 0) {
            int64_t held = left < width ? left : width;
            MEG_TRY(e, give(c, e, c->rank - width, table + c->rank * bytes, held * bytes));
            break;
        }
        int64_t theirs = left - width < width ? left - width : width;
        int peer = c->rank + width;
        if (theirs > 0) MEG_TRY(e, take(c, e, peer, table + peer * bytes, theirs * bytes));
    }
    return meg_comm_share(c, e, 0, all, c->size * bytes);
}

meg_status meg_comm_barrier(meg_comm *c, meg_error *e)
{
    char *all = malloc((size_t)c->size), mine = 0;
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory for a barrier of %d ranks", c->size);
    meg_status status = meg_comm_gather(c, e, &mine, 1, all);
    free(all);
    return status;
}

/* ---- agree ---- */

typedef struct verdict { /* of the ranks below a node of the tree */
    int failed;          /* how many */
    int rank;            /* the lowest of them */
    int same;            /* all of them say the same */
    meg_status status;
    char message[sizeof((meg_error *)0)->message];
} verdict;

static void join(verdict *v, const verdict *higher)
{
    if (higher->failed == 0) return;
    if (v->failed == 0) {
        *v = *higher;
        return;
    }
    v->failed += higher->failed;
    v->same = v->same && higher->same && strcmp(v->message, higher->message) == 0;
}

/* An error that was agreed upon before names its rank already. */
static bool names_rank(const char *message)
{
    int rank, end = 0;
    return sscanf(message, "rank %d: %n", &rank, &end) == 1 && end > 0;
}

meg_status meg_comm_agree(meg_comm *c, meg_error *e)
{
    verdict v = {.failed = e->status != MEG_OK, .rank = c->rank, .same = 1, .status = e->status};
    if (v.failed) memcpy(v.message, e->message, sizeof v.message);
    meg_error trouble = {0}; /* of the agreement itself */
    for (int width = 1; width < c->size; width *= 2) {
        verdict other;
        int peer = c->rank + width;
        if (c->rank % (2 * width) != 0) {
            if (give(c, &trouble, c->rank - width, &v, sizeof v) != MEG_OK) goto broken;
            break;
        }
        if (peer >= c->size) continue;
        if (take(c, &trouble, peer, &other, sizeof other) != MEG_OK) goto broken;
        join(&v, &other);
    }
    if (meg_comm_share(c, &trouble, 0, &v, sizeof v) != MEG_OK) goto broken;
    if (!v.failed) return MEG_OK;
    if ((v.failed == c->size && v.same) || names_rank(v.message))
        return meg_fail(e, v.status, "%s", v.message);
    return meg_fail(e, v.status, "rank %d: %.*s", v.rank, (int)sizeof v.message - 32, v.message);

broken:
    if (e->status == MEG_OK) *e = trouble; /* else what came first is told */
    return e->status;
}
