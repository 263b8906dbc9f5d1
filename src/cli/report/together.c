/* Together: see together.h. Clocks are compared as NTP does it (Mills 1985): rank 0 sends its time, the
 * other answers with its own, which lies between sending and answer.
 *
 *     rank 0   begin ----.            .---> end       ahead = there - (begin + end) / 2
 *     rank r              '--> there -'
 *
 * Of some rounds the shortest counts. Ranks on the first one's node read the same clock.
 */
#include "cli/report/together.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 16,
    PIECE = 1 << 20 /* bytes of a message */
};

/* One message to or from a peer. The last tag is that of collective calls. */
static meg_status pass(meg_comm *c, meg_error *e, int peer, void *data, int64_t bytes, bool sends)
{
    meg_letter *m = NULL;
    int tag = meg_comm_tags(c) - 2;
    MEG_TRY(e, sends ? meg_comm_send(c, e, peer, tag, data, bytes, &m)
                     : meg_comm_recv(c, e, peer, tag, data, bytes, &m));
    return meg_comm_wait(c, e, &m);
}

/* ---- clocks ---- */

static meg_status ask(meg_comm *c, meg_error *e, int peer)
{
    double ahead = 0, shortest = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = meg_clock(), there = begin;
        MEG_TRY(e, pass(c, e, peer, &there, sizeof there, true));
        MEG_TRY(e, pass(c, e, peer, &there, sizeof there, false));
        double end = meg_clock();
        if (i > 0 && end - begin >= shortest) continue;
        shortest = end - begin;
        ahead = there - (begin + end) / 2;
    }
    return pass(c, e, peer, &ahead, sizeof ahead, true);
}

static meg_status answer(meg_comm *c, meg_error *e, double *ahead)
{
    for (int i = 0; i < ROUNDS; i++) {
        double now;
        MEG_TRY(e, pass(c, e, 0, &now, sizeof now, false));
        now = meg_clock();
        MEG_TRY(e, pass(c, e, 0, &now, sizeof now, true));
    }
    return pass(c, e, 0, ahead, sizeof *ahead, false);
}

meg_status meg_together_clock(meg_comm *c, meg_error *e, double *ahead)
{
    const int *node = meg_comm_node(c);
    int me = meg_comm_rank(c);
    *ahead = 0;
    if (me > 0) return node[me] == node[0] ? MEG_OK : answer(c, e, ahead);
    for (int r = 1; r < meg_comm_size(c); r++)
        if (node[r] != node[0]) MEG_TRY(e, ask(c, e, r));
    return MEG_OK;
}

/* ---- texts ---- */

/* What cannot be read is sent as blanks: the receiver counts on it, and all are told in the end. */
static meg_status give(meg_comm *c, meg_error *e, FILE *mine, char *piece)
{
    bool bad = fflush(mine) != 0 || fseek(mine, 0, SEEK_END) != 0;
    long size = bad ? 0 : ftell(mine);
    int64_t left = size > 0 ? size : 0;
    rewind(mine);
    MEG_TRY(e, pass(c, e, 0, &left, sizeof left, true));
    for (; left > 0; left -= PIECE) {
        size_t bytes = left < PIECE ? (size_t)left : PIECE;
        memset(piece, ' ', bytes);
        if (fread(piece, 1, bytes, mine) != bytes) bad = true;
        MEG_TRY(e, pass(c, e, 0, piece, (int64_t)bytes, true));
    }
    MEG_CHECK(e, !bad && size >= 0, MEG_EIO, "cannot read the part of a trace again: %s",
              strerror(errno));
    return MEG_OK;
}

static meg_status take(meg_comm *c, meg_error *e, int peer, FILE *to, char *piece)
{
    int64_t left;
    MEG_TRY(e, pass(c, e, peer, &left, sizeof left, false));
    for (; left > 0; left -= PIECE) {
        size_t bytes = left < PIECE ? (size_t)left : PIECE;
        MEG_TRY(e, pass(c, e, peer, piece, (int64_t)bytes, false));
        fwrite(piece, 1, bytes, to); /* who closes the file asks for errors */
    }
    return MEG_OK;
}

meg_status meg_together_collect(meg_comm *c, meg_error *e, FILE *mine)
{
    char *piece = malloc(PIECE);
    if (!piece) abort();
    meg_status status = MEG_OK;
    if (meg_comm_rank(c) > 0) status = give(c, e, mine, piece);
    for (int r = 1; meg_comm_rank(c) == 0 && r < meg_comm_size(c) && status == MEG_OK; r++)
        status = take(c, e, r, mine, piece);
    free(piece);
    return status;
}
