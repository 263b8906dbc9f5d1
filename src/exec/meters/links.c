/* Messages measured: see links.h. Ping-pong, as the OSU Micro-Benchmarks have it: half of a round trip. But
 * each message comes from memory that was not touched for a while, as those of a step do, and of many
 * trials the median of the better half counts, not the best.
 *
 *     inside    0-1 2-3 ..      neighbours on a node; on all nodes at once
 *     between   0-4 1-5 ..      the ranks of a node with those of the next one
 *
 * Both ways at once between more than two nodes go round a ring, as sums do: what comes is of another node than
 * where one's own goes. Some libraries are half as quick where two ranks send to each other.
 */
#include "exec/meters/links.h"
#include "base/clock.h"
#include "exec/meters/median.h"
#include "exec/meters/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIALS = 1000, /* at most, */
    FEWEST = 5,    /* and at least */
    EXCHANGES = 4, /* of one trial both ways */
    TAG = 0,
    LINE = 512
};

static const double PATIENCE = 0.05; /* seconds of a size, where the machine is busy */
static const double SLOW =
    0.02; /* seconds of a message, above which larger ones are as quick a byte */
static const int64_t SIZES[] = {1, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22};

enum {
    COUNT = sizeof SIZES / sizeof *SIZES,
    AREA = 16 << 20 /* bytes that messages come from by turns: more than a core's own cache */
};

typedef struct probing {
    meg_comm *comm;
    meg_error *error;
    bool inside;
    meg_link sums; /* of these only */
    int pairs;     /* at once */
    int partner;   /* -1: this rank looks on */
    bool first;    /* of the two */
    bool both;     /* messages go both ways at once: */
    int to, from;  /* partner; or, round a ring, others */
    char *memory;  /* twice AREA: what goes, what comes */
    double *trial; /* (TRIALS) seconds */
} probing;

/* How many ranks before this one are on its node. */
static int index_of(const meg_comm *c, int rank)
{
    int index = 0;
    for (int r = 0; r < rank; r++)
        index += meg_comm_node(c)[r] == meg_comm_node(c)[rank];
    return index;
}

/* -1: there is none. */
static int rank_at(const meg_comm *c, int node, int index)
{
    for (int r = 0; r < meg_comm_size(c); r++)
        if (meg_comm_node(c)[r] == node && index-- == 0) return r;
    return -1;
}

static int most_pairs(const meg_comm *c, bool inside)
{
    int most = 0;
    for (int r = 0; r < meg_comm_size(c); r++) {
        int index = index_of(c, r), node = meg_comm_node(c)[r];
        bool pair = inside ? index % 2 == 1 : node % 2 == 1 && rank_at(c, node ^ 1, index) >= 0;
        int pairs = inside ? index / 2 + 1 : index + 1;
        if (pair && pairs > most) most = pairs;
    }
    return most;
}

static void find_partner(probing *p)
{
    const meg_comm *c = p->comm;
    int me = meg_comm_rank(c), index = index_of(c, me), node = meg_comm_node(c)[me];
    int pair = p->inside ? index / 2 : index;
    p->partner = p->inside ? rank_at(c, node, index ^ 1) : rank_at(c, node ^ 1, index);
    p->first = (p->inside ? index : node) % 2 == 0;
    if (pair >= p->pairs) p->partner = -1;
    p->to = p->from = p->partner;
}

static int nodes_of(const meg_comm *c)
{
    int most = 0;
    for (int r = 0; r < meg_comm_size(c); r++)
        if (meg_comm_node(c)[r] > most) most = meg_comm_node(c)[r];
    return most + 1;
}

/* More than two nodes, all with as many ranks. */
static bool has_ring(const probing *p)
{
    const meg_comm *c = p->comm;
    int nodes = nodes_of(c);
    return p->both && !p->inside && nodes > 2 && meg_comm_size(c) == nodes * p->pairs;
}

static void find_ring(probing *p)
{
    const meg_comm *c = p->comm;
    int me = meg_comm_rank(c), index = index_of(c, me), nodes = nodes_of(c);
    int node = meg_comm_node(c)[me];
    p->to = rank_at(c, (node + 1) % nodes, index);
    p->from = rank_at(c, (node + nodes - 1) % nodes, index);
}

/* The memory of the i-th trial. */
static char *place_of(const probing *p, int i, int64_t bytes)
{
    return p->memory + i * bytes % (AREA - bytes + 1);
}

static meg_status one_way(const probing *p, bool sends, char *at, int64_t bytes)
{
    meg_letter *m = NULL;
    if (sends) MEG_TRY(p->error, meg_comm_send(p->comm, p->error, p->partner, TAG, at, bytes, &m));
    else MEG_TRY(p->error, meg_comm_recv(p->comm, p->error, p->partner, TAG, at, bytes, &m));
    return meg_comm_wait(p->comm, p->error, &m);
}

/* One there and one back at the same time, EXCHANGES times: the side that hears of it later begins later, which would
 * count for half of a single exchange. */
static meg_status two_ways(const probing *p, char *at, int64_t bytes)
{
    meg_letter *sent = NULL, *came = NULL;
    for (int i = 0; i < EXCHANGES; i++) {
        MEG_TRY(p->error, meg_comm_recv(p->comm, p->error, p->from, TAG, at + AREA, bytes, &came));
        MEG_TRY(p->error, meg_comm_send(p->comm, p->error, p->to, TAG, at, bytes, &sent));
        MEG_TRY(p->error, meg_comm_wait(p->comm, p->error, &sent));
        MEG_TRY(p->error, meg_comm_wait(p->comm, p->error, &came));
    }
    return MEG_OK;
}

/* Of the better half of the trials. */
static double middle(double *trial, int count)
{
    qsort(trial, (size_t)count, sizeof *trial, meg_ascending);
    return trial[count / 4];
}

/* Seconds of a message of this pair; negative: it has none. A byte ahead tells the other side whether it is
 * the last time, and lets both begin together. */
static meg_status time_pair(const probing *p, int64_t bytes, double *out)
{
    double begin = meg_clock();
    char last = false;
    int count = 0;
    while (p->partner >= 0 && !last) {
        char *at = place_of(p, count, bytes);
        last = count + 1 >= FEWEST && (count + 1 >= TRIALS || meg_clock() - begin > PATIENCE);
        MEG_TRY(p->error, one_way(p, p->first, &last, 1));
        double start = meg_clock();
        if (p->both) MEG_TRY(p->error, two_ways(p, at, bytes));
        else {
            MEG_TRY(p->error, one_way(p, p->first, at, bytes));
            MEG_TRY(p->error, one_way(p, !p->first, at, bytes));
        }
        p->trial[count++] = (meg_clock() - start) / (p->both ? EXCHANGES : 2);
    }
    *out = count ? middle(p->trial, count) : -1;
    return MEG_OK;
}

/* The same round a ring, where the first trial says how many there shall be. */
static meg_status time_ring(const probing *p, int64_t bytes, double *out)
{
    int count = FEWEST;
    for (int i = 0; i < count; i++) {
        double start = meg_clock();
        MEG_TRY(p->error, two_ways(p, place_of(p, i, bytes), bytes));
        p->trial[i] = (meg_clock() - start) / EXCHANGES;
        if (i > 0) continue;
        count = (int)fmin(fmax(PATIENCE / (EXCHANGES * p->trial[0]), FEWEST), TRIALS);
        MEG_TRY(p->error, meg_comm_share(p->comm, p->error, 0, &count, sizeof count));
    }
    *out = middle(p->trial, count);
    return MEG_OK;
}

/* The median over the pairs. */
static meg_status time_all(const probing *p, int64_t bytes, double *out)
{
    double mine;
    int ranks = meg_comm_size(p->comm), count = 0;
    MEG_TRY(p->error, meg_comm_barrier(p->comm, p->error));
    if (has_ring(p)) MEG_TRY(p->error, time_ring(p, bytes, &mine));
    else MEG_TRY(p->error, time_pair(p, bytes, &mine));
    double *all = calloc((size_t)ranks, sizeof *all);
    MEG_CHECK(p->error, all, MEG_ENOMEM, "no memory for the times of %d ranks", ranks);
    meg_status status = meg_comm_gather(p->comm, p->error, &mine, sizeof mine, all);
    for (int r = 0; r < ranks; r++)
        if (all[r] >= 0) all[count++] = all[r];
    qsort(all, (size_t)count, sizeof *all, meg_ascending);
    *out = count ? all[count / 2] : 0;
    free(all);
    return status;
}

/* No message is faster than the smallest one; where others spoilt that, the fastest of all stands for it. */
static meg_status probe_pairs(probing *p, meg_prices *book)
{
    char line[LINE];
    double seconds[COUNT], latency = INFINITY;
    int count = 0;
    find_partner(p);
    if (has_ring(p)) find_ring(p);
    MEG_TRY(p->error, time_all(p, SIZES[0], &seconds[0])); /* the first time does not count */
    while (count < COUNT && (count < 2 || seconds[count - 1] < SLOW)) {
        MEG_TRY(p->error, time_all(p, SIZES[count], &seconds[count]));
        latency = fmin(latency, seconds[count++]);
    }
    bool alone = p->pairs == 1 && !p->both;
    char hop[32] = "";
    if (alone && p->sums.hop > 0) snprintf(hop, sizeof hop, " hop=%.3g", p->sums.hop);
    int used = snprintf(line, LINE,
                        "%s latency=%.3g%s pairs=%d%s at=", p->inside ? "inside" : "between",
                        latency, hop, p->pairs, p->both ? " both=yes" : "");
    for (int i = 1; i < count; i++) {
        double rate = (double)SIZES[i] / fmax(seconds[i] - latency, seconds[i] / 4);
        used += snprintf(line + used, (size_t)(LINE - used), "%s%lld:%.3g", i > 1 ? "," : "",
                         (long long)SIZES[i], rate);
    }
    for (int i = 0; i < p->sums.sums && alone; i++)
        used += snprintf(line + used, (size_t)(LINE - used), "%s%lld:%.3g",
                         i ? "," : " sums=", (long long)p->sums.sum[i].bytes,
                         p->sums.sum[i].bandwidth);
    meg_prices_add_link(book, line);
    return MEG_OK;
}

/* One pair alone, then twice as many each time, and all at last: these also both ways. */
static meg_status probe_kind(probing *p, meg_prices *book)
{
    int most = most_pairs(p->comm, p->inside);
    p->both = false;
    p->sums = (meg_link){0};
    MEG_TRY(p->error, meg_sums_probe(p->comm, p->error, p->inside, &p->sums));
    for (p->pairs = 1; p->pairs < most; p->pairs *= 2)
        MEG_TRY(p->error, probe_pairs(p, book));
    p->pairs = most;
    if (!most) return MEG_OK;
    MEG_TRY(p->error, probe_pairs(p, book));
    p->both = true;
    return probe_pairs(p, book);
}

meg_status meg_links_probe(meg_comm *c, meg_error *e, meg_prices *book)
{
    probing p = {
        .comm = c, .error = e, .memory = calloc(2, AREA), .trial = calloc(TRIALS, sizeof *p.trial)};
    if (!p.memory || !p.trial) meg_fail(e, MEG_ENOMEM, "no memory for a message");
    else meg_error_clear(e);
    meg_status status = meg_comm_agree(c, e);
    for (int inside = 1; inside >= 0 && status == MEG_OK; inside--) {
        p.inside = inside;
        status = probe_kind(&p, book);
    }
    free(p.memory);
    free(p.trial);
    return status;
}
