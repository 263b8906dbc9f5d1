/* What a job of any number of ranks must do over the communicator that meg_comm_open gives:
 * t521-mpi.sh runs this under every MPI; on its own it is one rank alone. The word says what:
 *
 *     all       (or none) messages, collective calls, splitting, reductions against the library's
 *     fail      rank 1 has an error: all print the same message and end with 3
 *     vanish    rank 1 is killed: the launcher must end the job
 *     abort     rank 1 ends the job with status 5
 *     idle      waits half a second for a message; prints the processor time that this took
 *     library   rank 0 prints the library and the number of ranks
 */
#include "reduce_check.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

/* ---- all ---- */

/* To every other rank at once, sizes from 0 up; with small pieces (MEGALITH_MPI_PIECE) they are
 * split. Two messages of one tag each: order is kept. */
static void all_to_all(meg_comm *c)
{
    enum {
        MOST = 100003
    };
    static const int64_t sizes[] = {0, 1, 4096, 4097, MOST};
    meg_error e = {0};
    int size = meg_comm_size(c), me = meg_comm_rank(c);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        unsigned char *out = malloc(2 * MOST), *in = malloc((size_t)size * 2 * MOST);
        meg_letter **m = calloc(4 * (size_t)size, sizeof(meg_letter *));
        REQUIRE(out && in && m, "no memory");
        for (int64_t i = 0; i < 2 * n; i++)
            out[i] = (unsigned char)(i * 7 + me * 31 + (i >= n));
        for (int r = 0; r < size; r++)
            for (int k = 0; k < 2 && r != me; k++) {
                unsigned char *at = in + (2 * r + k) * MOST;
                OK(&e, meg_comm_recv(c, &e, r, 5, at, n, &m[4 * r + k]));
                OK(&e, meg_comm_send(c, &e, r, 5, out + k * n, n, &m[4 * r + 2 + k]));
            }
        for (int i = 4 * size - 1; i >= 0; i--)
            OK(&e, meg_comm_wait(c, &e, &m[i]));
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < 2 * n && r != me; i++) {
                int got = in[(2 * r + (i >= n)) * MOST + (i >= n ? i - n : i)];
                int expected = (unsigned char)(i * 7 + r * 31 + (i >= n));
                REQUIRE(got == expected, "byte %ld of %ld from rank %d is %d, not %d", (long)i,
                        (long)n, r, got, expected);
            }
        free(out);
        free(in);
        free(m);
    }
}

static void wrong_size(meg_comm *c)
{
    meg_error e = {0};
    meg_letter *m = NULL;
    char data[64] = {0};
    for (int more = 0; more < 2 && meg_comm_rank(c) < 2; more++) {
        int peer = 1 - meg_comm_rank(c);
        if (meg_comm_rank(c) == 0) {
            OK(&e, meg_comm_send(c, &e, peer, 2, data, more ? 4 : 2, &m));
            OK(&e, meg_comm_wait(c, &e, &m));
            continue;
        }
        OK(&e, meg_comm_recv(c, &e, peer, 2, data, 3, &m));
        REQUIRE(meg_comm_wait(c, &e, &m) == MEG_EDATA && !m, "no error");
        REQUIRE(strstr(e.message, "rank 1 expected 3 bytes from rank 0 (tag 2), but "), "said: %s",
                e.message);
    }
}

static void collectives(meg_comm *c)
{
    meg_error e = {0};
    int size = meg_comm_size(c), me = meg_comm_rank(c), *all = calloc((size_t)size, sizeof *all);
    REQUIRE(all, "no memory");
    for (int root = 0; root < size; root++) {
        int64_t value = me == root ? 77 + root : 0;
        OK(&e, meg_comm_share(c, &e, root, &value, sizeof value));
        REQUIRE(value == 77 + root, "root %d: %ld", root, (long)value);
    }
    OK(&e, meg_comm_gather(c, &e, &me, sizeof me, all));
    for (int r = 0; r < size; r++)
        REQUIRE(all[r] == r, "rank %d says %d", r, all[r]);
    free(all);
    REQUIRE(meg_comm_nodes(c) == 1 && meg_comm_node(c)[size - 1] == 0, "one machine, one node");
    OK(&e, meg_comm_agree(c, &e));

    meg_comm *part = NULL;
    OK(&e, meg_comm_split(c, &e, me == 0 && size > 1 ? -1 : me % 2, &part));
    REQUIRE(!part == (me == 0 && size > 1), "who leaves gets nothing");
    if (part) reduce_all(part, 501);
    meg_comm_free(part);
}

static void all(meg_comm *c)
{
    if (meg_comm_size(c) > 1) wrong_size(c);
    all_to_all(c);
    collectives(c);
    reduce_all(c, 200003);
}

/* ---- trouble ---- */

static int agree(meg_comm *c)
{
    meg_error e = {0};
    if (meg_comm_rank(c) == 1) meg_fail(&e, MEG_EDATA, "the file is torn");
    meg_status status = meg_comm_agree(c, &e);
    printf("%s\n", e.message);
    return status == MEG_EDATA ? 3 : 1;
}

/* The others wait for what will not come. */
static void wait_for_one(meg_comm *c)
{
    meg_error e = {0};
    meg_letter *m = NULL;
    char byte;
    OK(&e, meg_comm_recv(c, &e, 1, 0, &byte, 1, &m));
    OK(&e, meg_comm_wait(c, &e, &m));
}

static void idle(meg_comm *c)
{
    meg_error e = {0};
    meg_letter *m = NULL;
    char byte = 0;
    OK(&e, meg_comm_barrier(c, &e));
    clock_t used = clock();
    if (meg_comm_rank(c) == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        for (int r = 0; r < meg_comm_size(c); r++)
            if (r != 1) {
                OK(&e, meg_comm_send(c, &e, r, 0, &byte, 1, &m));
                OK(&e, meg_comm_wait(c, &e, &m));
            }
    } else wait_for_one(c);
    printf("%.0f\n", 1e3 * (double)(clock() - used) / CLOCKS_PER_SEC);
}

int main(int count, char *word[])
{
    const char *what = count > 1 ? word[1] : "all";
    meg_error e = {0};
    meg_comm *c = NULL;
    int result = 0;
    if (meg_comm_open(&e, &c) != MEG_OK) {
        fprintf(stderr, "%s\n", e.message);
        return 2;
    }
    bool trouble = meg_comm_rank(c) == 1;
    if (strcmp(what, "all") == 0) all(c);
    else if (strcmp(what, "fail") == 0) result = agree(c);
    else if (strcmp(what, "vanish") == 0 && trouble) kill(getpid(), SIGKILL);
    else if (strcmp(what, "vanish") == 0) wait_for_one(c);
    else if (strcmp(what, "abort") == 0 && trouble) meg_comm_abort(c, 5, "the disk is full");
    else if (strcmp(what, "abort") == 0) wait_for_one(c);
    else if (strcmp(what, "idle") == 0) idle(c);
    else if (strcmp(what, "library") == 0 && meg_comm_rank(c) == 0)
        printf("%s, %d ranks\n", meg_comm_library(c), meg_comm_size(c));
    meg_comm_free(c);
    return result;
}
