/* Ranks as processes under MPI 3.1. This file is compiled once per MPI library into a plug-in of
 * its own (open.c loads one of them); no other file knows mpi.h.
 *
 * Requests that are under way stand in one array, so that one MPI_Testsome moves all of them on;
 * MPI progresses only inside its calls. Messages longer than the `piece` (an MPI count is an int)
 * are several requests with the same tag, which MPI keeps in order.
 *
 * Waiting: MPI's own would burn a core that the rank's workers need. Here a rank looks and gives its
 * time slice away for EAGER seconds, then naps, longer and longer, up to NAP_LONG; anything that happens
 * makes it eager again. EAGER is longer than neighbours' kernels differ: ranks that meet for every
 * layer (halos, sums of norms) would else sleep each time, and a sleep costs as much as the layer,
 * most of all on virtual machines, whose halted processors others take. Where ranks outnumber the
 * processors, those that only look keep the processor from those that work: there it is HASTY.
 */
#include "base/clock.h"
#include "base/pool.h"
#include "comm/kind.h"
#include "comm/waker.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EAGER     1e-3
#define HASTY     25e-6
#define NAP_SHORT 20e-6
#define NAP_LONG  200e-6
enum {
    NAPS = 1000, /* more are not counted */
    PIECE = 1 << 30,
    NO_PEER = -1
};

struct meg_letter {
    int peer, tag; /* peer NO_PEER: not a receive */
    int left;      /* pieces */
    int code;      /* the first error of MPI */
    int64_t bytes, got, seen;
};

typedef struct mpi {
    meg_comm base;
    MPI_Comm comm;
    bool owner; /* of MPI itself */
    int64_t piece;
    meg_waker waker;
    int *node;
    char library[64];

    int active; /* requests under way, the oldest first */
    size_t room[4];
    MPI_Request *request;
    meg_letter **message; /* of the request */
    int *index;           /* for MPI_Testsome, as the next one */
    MPI_Status *status;

    bool news;      /* something was done since the last sleep */
    double since;   /* when the first look since then was in vain; 0: none was */
    int idle;       /* naps since then */
    int64_t rounds; /* how often all requests were looked at */
} mpi;

static const meg_comm_kind KIND;
static meg_status wrap(meg_error *e, MPI_Comm comm, const mpi *parent, meg_comm **out);

static meg_status failed(meg_error *e, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return meg_fail(e, MEG_EIO, "%s: %s", what, text);
}

#define TRY_MPI(e, what, call)                                                                     \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MPI_SUCCESS) return failed(e, what, code_);                                   \
    } while (0)

/* ---- requests ---- */

/* Room for one more request; returns where it goes. */
static MPI_Request *slot(mpi *c, meg_letter *m)
{
    size_t need = (size_t)c->active + 1;
    c->request = meg_grow(c->request, &c->room[0], need, sizeof *c->request);
    c->message = meg_grow(c->message, &c->room[1], need, sizeof *c->message);
    c->index = meg_grow(c->index, &c->room[2], need, sizeof *c->index);
    c->status = meg_grow(c->status, &c->room[3], need, sizeof *c->status);
    c->message[c->active] = m;
    return &c->request[c->active];
}

static void note(meg_letter *m, const MPI_Status *s, bool has_error)
{
    int bytes = 0;
    if (has_error && s->MPI_ERROR != MPI_SUCCESS && m->code == MPI_SUCCESS) m->code = s->MPI_ERROR;
    if (m->peer != NO_PEER && MPI_Get_count(s, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes > 0)
        m->got += bytes;
    m->left--;
}

/* Looks at all requests once and drops those that are done. Without any, MPI may still have to push
 * what it took over from earlier sends: a probe makes it. */
static meg_status progress(mpi *c, meg_error *e)
{
    int done = 0, left = 0;
    c->rounds++;
    if (c->active == 0) {
        TRY_MPI(e, "MPI_Iprobe",
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->comm, &done, MPI_STATUS_IGNORE));
        return MEG_OK;
    }
    int code = MPI_Testsome(c->active, c->request, &done, c->index, c->status);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return failed(e, "MPI_Testsome", code);
    if (done == MPI_UNDEFINED || done == 0) return MEG_OK;
    for (int i = 0; i < done; i++) {
        note(c->message[c->index[i]], &c->status[i], code == MPI_ERR_IN_STATUS);
        c->message[c->index[i]] = NULL;
    }
    for (int i = 0; i < c->active; i++) {
        if (!c->message[i]) continue;
        c->request[left] = c->request[i];
        c->message[left++] = c->message[i];
    }
    c->active = left;
    c->news = true;
    return MEG_OK;
}

static meg_letter *message_new(const mpi *c, int peer, int tag, int64_t bytes)
{
    meg_letter *m = calloc(1, sizeof *m);
    if (m)
        *m = (meg_letter){
            .peer = peer, .tag = tag, .bytes = bytes, .code = MPI_SUCCESS, .seen = c->rounds};
    return m;
}

/* ---- messages ---- */

/* The size of the next piece of a message, the only one of an empty message. */
static int next_piece(const mpi *c, int64_t left)
{
    return (int)(left < c->piece ? left : c->piece);
}

/* Hands the message out, unless posting its pieces failed; earlier ones then still point to it. */
static meg_status posted(meg_error *e, const char *what, int code, meg_letter *m, meg_letter **out)
{
    if (code == MPI_SUCCESS) {
        *out = m;
        return MEG_OK;
    }
    if (m->left == 0) free(m);
    return failed(e, what, code);
}

static meg_status send(meg_comm *base, meg_error *e, int peer, int tag, const void *data,
                       int64_t bytes, meg_letter **out)
{
    mpi *c = (mpi *)base;
    meg_letter *m = message_new(c, NO_PEER, tag, bytes);
    MEG_CHECK(e, m, MEG_ENOMEM, "no memory for a message");
    int64_t at = 0;
    int code;
    do {
        code = MPI_Isend((const char *)data + at, next_piece(c, bytes - at), MPI_BYTE, peer, tag,
                         c->comm, slot(c, m));
        if (code != MPI_SUCCESS) break;
        at += c->piece;
        m->left++;
        c->active++;
    } while (at < bytes);
    return posted(e, "MPI_Isend", code, m, out);
}

static meg_status recv(meg_comm *base, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                       meg_letter **out)
{
    mpi *c = (mpi *)base;
    meg_letter *m = message_new(c, peer, tag, bytes);
    MEG_CHECK(e, m, MEG_ENOMEM, "no memory for a message");
    int64_t at = 0;
    int code;
    do {
        code = MPI_Irecv((char *)data + at, next_piece(c, bytes - at), MPI_BYTE, peer, tag, c->comm,
                         slot(c, m));
        if (code != MPI_SUCCESS) break;
        at += c->piece;
        m->left++;
        c->active++;
    } while (at < bytes);
    return posted(e, "MPI_Irecv", code, m, out);
}

static meg_status allreduce(meg_comm *base, meg_error *e, const meg_numbers *data,
                            meg_combine combine, meg_letter **out)
{
    mpi *c = (mpi *)base;
    const MPI_Datatype types[MEG_NUMBERS] = {MPI_FLOAT, MPI_DOUBLE, MPI_INT32_T, MPI_INT64_T};
    const MPI_Op ops[MEG_COMBINES] = {MPI_SUM, MPI_MAX};
    const int64_t bytes = meg_number_bytes(data->type), each = c->piece / bytes;
    meg_letter *m = message_new(c, NO_PEER, 0, 0);
    MEG_CHECK(e, m, MEG_ENOMEM, "no memory for a message");
    int code = MPI_SUCCESS;
    for (int64_t at = 0; at < data->count && code == MPI_SUCCESS; at += each) {
        int64_t left = data->count - at;
        code = MPI_Iallreduce(MPI_IN_PLACE, (char *)data->data + at * bytes,
                              (int)(left < each ? left : each), types[data->type], ops[combine],
                              c->comm, slot(c, m));
        m->left += code == MPI_SUCCESS;
        c->active += code == MPI_SUCCESS;
    }
    return posted(e, "MPI_Iallreduce", code, m, out);
}

/* Whoever asks a second time after a look at all requests causes the next look: a sweep over many
 * messages costs one. */
static meg_status test(meg_comm *base, meg_error *e, meg_letter **m, bool *done)
{
    mpi *c = (mpi *)base;
    if ((*m)->left > 0 && (*m)->seen == c->rounds) MEG_TRY(e, progress(c, e));
    (*m)->seen = c->rounds;
    *done = (*m)->left == 0;
    if (!*done) return MEG_OK;
    meg_letter old = **m;
    free(*m);
    *m = NULL;
    bool receive = old.peer != NO_PEER;
    int class = MPI_SUCCESS;
    if (old.code != MPI_SUCCESS) MPI_Error_class(old.code, &class);
    MEG_CHECK(e, class != MPI_ERR_TRUNCATE, MEG_EDATA,
              "rank %d expected %lld bytes from rank %d (tag %d), but more came", base->rank,
              (long long)old.bytes, old.peer, old.tag);
    if (old.code != MPI_SUCCESS) return failed(e, "a message", old.code);
    MEG_CHECK(e, !receive || old.got == old.bytes, MEG_EDATA,
              "rank %d expected %lld bytes from rank %d (tag %d), but %lld came", base->rank,
              (long long)old.bytes, old.peer, old.tag, (long long)old.got);
    return MEG_OK;
}

/* A receive can be taken back; what else is under way, MPI finishes or loses with the job. */
static void drop(meg_comm *base, meg_letter *m)
{
    mpi *c = (mpi *)base;
    int left = 0;
    for (int i = 0; i < c->active; i++) {
        if (c->message[i] != m) {
            c->request[left] = c->request[i];
            c->message[left++] = c->message[i];
        } else if (m->peer != NO_PEER) {
            MPI_Cancel(&c->request[i]);
            MPI_Wait(&c->request[i], MPI_STATUS_IGNORE);
        }
    }
    c->active = left;
    free(m);
}

/* ---- sleeping ---- */

static double nap(const mpi *c)
{
    double seconds = NAP_SHORT * (1 + 0.25 * c->idle);
    return seconds < NAP_LONG ? seconds : NAP_LONG;
}

static void be_eager(mpi *c)
{
    c->news = false;
    c->since = 0;
    c->idle = 0;
}

static meg_status sleep_mpi(meg_comm *base, meg_error *e, double seconds)
{
    mpi *c = (mpi *)base;
    double until = meg_clock() + seconds;
    bool woken = false;
    for (;;) {
        if (!c->news) MEG_TRY(e, progress(c, e));
        if (c->news || woken) {
            be_eager(c);
            return MEG_OK;
        }
        double now = meg_clock(), left = until - now, pause = 0;
        if (left <= 0) return MEG_OK;
        if (c->since == 0) c->since = now;
        if (now - c->since < (c->base.crowded ? HASTY : EAGER)) sched_yield();
        else {
            pause = nap(c) < left ? nap(c) : left;
            c->idle += c->idle < NAPS;
        }
        woken = meg_waker_sleep(&c->waker, pause);
    }
}

static meg_status doze_mpi(meg_comm *base, meg_error *e, double seconds)
{
    mpi *c = (mpi *)base;
    meg_waker_sleep(&c->waker, seconds);
    MEG_TRY(e, progress(c, e));
    be_eager(c);
    return MEG_OK;
}

static void wake(meg_comm *base)
{
    meg_waker_wake(&((mpi *)base)->waker);
}

/* ---- begin and end ---- */

static void mpi_free(meg_comm *base)
{
    mpi *c = (mpi *)base;
    bool owner = c->owner;
    MPI_Comm_free(&c->comm);
    meg_waker_close(&c->waker);
    free(c->request);
    free(c->message);
    free(c->index);
    free(c->status);
    free(c->node);
    free(c);
    if (owner) MPI_Finalize();
}

static bool is_unread(int fd)
{
    struct stat what;
    int bytes = 0;
    return fstat(fd, &what) == 0 && S_ISFIFO(what.st_mode) && ioctl(fd, FIONREAD, &bytes) == 0 &&
           bytes > 0;
}

/* A launcher that is told to abort may drop what it has not yet read from the pipes of a rank, as
 * MPICH's does. A moment after they are empty the words are under way; a launcher that does not read
 * is waited for no longer than a second. */
static void await_launcher(void)
{
    const struct timespec moment = {0, 20000000L};
    bool unread = true;
    for (int tries = 0; unread && tries < 50; tries++) {
        unread = is_unread(STDERR_FILENO) || is_unread(STDOUT_FILENO);
        nanosleep(&moment, NULL);
    }
}

static __attribute__((noreturn)) void end(meg_comm *base, int code)
{
    (void)base;
    await_launcher();
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

static meg_status split(meg_comm *base, meg_error *e, int colour, meg_comm **out)
{
    mpi *c = (mpi *)base;
    MPI_Comm part;
    TRY_MPI(e, "MPI_Comm_split",
            MPI_Comm_split(c->comm, colour < 0 ? MPI_UNDEFINED : colour, base->rank, &part));
    if (part != MPI_COMM_NULL) return wrap(e, part, c, out);
    *out = NULL;
    return MEG_OK;
}

/* Ranks that can share memory are on one node; its lowest rank stands for it. */
static meg_status find_nodes(mpi *c, meg_error *e)
{
    MPI_Comm node;
    int lowest = c->base.rank, here = 0;
    TRY_MPI(e, "MPI_Comm_split_type",
            MPI_Comm_split_type(c->comm, MPI_COMM_TYPE_SHARED, c->base.rank, MPI_INFO_NULL, &node));
    TRY_MPI(e, "MPI_Bcast", MPI_Bcast(&lowest, 1, MPI_INT, 0, node));
    TRY_MPI(e, "MPI_Comm_free", MPI_Comm_free(&node));
    TRY_MPI(e, "MPI_Allgather", MPI_Allgather(&lowest, 1, MPI_INT, c->node, 1, MPI_INT, c->comm));
    for (int r = 0; r < c->base.size; r++)
        c->node[r] = c->node[r] == r ? c->base.nodes++ : c->node[c->node[r]];
    for (int r = 0; r < c->base.size; r++)
        here += c->node[r] == c->node[c->base.rank];
    c->base.crowded = here > sysconf(_SC_NPROCESSORS_ONLN);
    return MEG_OK;
}

/* "Open MPI v4.1.4" of "Open MPI v4.1.4, package: ...", "MPICH Version: 4.0.2" of many lines. */
static void name_library(char out[64])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = strchr(text, '\t'); tab; tab = strchr(tab, '\t'))
        *tab = ' ';
    snprintf(out, 64, "%.63s", text);
}

/* A communicator for comm, which it owns from now on. */
static meg_status wrap(meg_error *e, MPI_Comm comm, const mpi *parent, meg_comm **out)
{
    int *bound = NULL, there = 0;
    mpi *c = calloc(1, sizeof *c);
    MEG_CHECK(e, c, MEG_ENOMEM, "no memory for a communicator");
    c->base = (meg_comm){.kind = &KIND};
    c->comm = comm;
    c->piece = parent ? parent->piece : PIECE;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &c->base.rank);
    MPI_Comm_size(comm, &c->base.size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &there);
    c->base.tags = there ? *bound : 32767; /* one less than there are: it may be INT_MAX */
    c->node = calloc((size_t)c->base.size, sizeof *c->node);
    name_library(c->library);
    c->base.library = c->library;
    c->base.node = c->node;
    meg_waker_open(&c->waker);
    meg_status status = c->node ? find_nodes(c, e) : meg_fail(e, MEG_ENOMEM, "no memory for ranks");
    if (status != MEG_OK) {
        mpi_free(&c->base);
        return status;
    }
    if (parent && parent->base.crowded) c->base.crowded = true;
    *out = &c->base;
    return MEG_OK;
}

/* On a copy: the messages of others do not meet ours. MEGALITH_MPI_PIECE makes pieces small, for tests. */
static meg_status open_copy(meg_error *e, MPI_Comm of, meg_comm **out)
{
    MPI_Comm comm;
    TRY_MPI(e, "MPI_Comm_dup", MPI_Comm_dup(of, &comm));
    MEG_TRY(e, wrap(e, comm, NULL, out));
    mpi *c = (mpi *)*out;
    const char *small = getenv("MEGALITH_MPI_PIECE");
    long long piece = small ? atoll(small) : 0;
    MPI_Bcast(&piece, 1, MPI_LONG_LONG, 0, comm); /* both sides of a message cut it alike */
    if (piece >= 8 && piece <= PIECE) c->piece = piece / 8 * 8;
    return MEG_OK;
}

static meg_status look(meg_error *e, int *begun)
{
    int over = 0;
    MPI_Finalized(&over);
    MEG_CHECK(e, !over, MEG_EUNSUPPORTED,
              "MPI has ended in this process and cannot begin again: open one context at a time, "
              "and keep it");
    MPI_Initialized(begun);
    return MEG_OK;
}

/* Ranks that others have begun, and will end. */
static meg_status open_on(meg_error *e, int fortran, meg_comm **out)
{
    int begun = 0;
    MEG_TRY(e, look(e, &begun));
    MEG_CHECK(e, begun, MEG_EARG,
              "a communicator was given, but MPI has not begun in this process: begin it first, or "
              "use meg_open");
    MPI_Comm comm = MPI_Comm_f2c((MPI_Fint)fortran);
    MEG_CHECK(e, comm != MPI_COMM_NULL, MEG_EARG,
              "the communicator is none (MPI_COMM_NULL): only its ranks open a context on it");
    return open_copy(e, comm, out);
}

/* MPI may have been begun by others, who then also end it. */
static meg_status open_world(meg_error *e, meg_comm **out)
{
    int begun = 0, provided = 0;
    MEG_TRY(e, look(e, &begun));
    if (!begun) {
        TRY_MPI(e, "MPI_Init_thread",
                MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
        /* Calls that name no communicator, as MPI_Testsome, ask these (before and since MPI 4). */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    MEG_TRY(e, open_copy(e, MPI_COMM_WORLD, out));
    ((mpi *)*out)->owner = !begun;
    return MEG_OK;
}

static const meg_comm_kind KIND = {
    .send = send,
    .recv = recv,
    .test = test,
    .drop = drop,
    .sleep = sleep_mpi,
    .doze = doze_mpi,
    .wake = wake,
    .allreduce = allreduce,
    .split = split,
    .abort = end,
    .free = mpi_free,
};

extern const meg_comm_plugin meg_comm_plugin_mpi;
__attribute__((visibility("default"))) const meg_comm_plugin meg_comm_plugin_mpi = {
    .version = MEG_VERSION,
    .layout = MEG_COMM_LAYOUT,
    .open = open_world,
    .open_on = open_on,
};
