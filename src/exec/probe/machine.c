/* Probing this machine: see machine.h. The spread of kernels is that of small networks, each of which is
 * planned for one rank and run as it is trained: what a kernel finds in the caches is then what it finds
 * in real steps. The first rows matter most: where the machine is slow, the last ones are left out.
 */
#include "exec/probe/machine.h"
#include "base/clock.h"
#include "exec/meters/disk.h"
#include "exec/meters/drift.h"
#include "exec/meters/links.h"
#include "exec/meters/median.h"
#include "exec/meters/rates.h"
#include "exec/probe/run.h"
#include "exec/probe/waits.h"
#include "exec/profile.h"
#include "machine/links.h"
#include "zoo/zoo.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double ROW = 0.03;  /* of the seconds are for the steps of a network */
static const double REST = 0.8;  /* of the seconds are for links and disk */
static const double LOOK = 0.03; /* of the seconds are for the first looks at the pace */
static const double SLOW = 0.2;  /* of the seconds may go for the messages of one network */

enum {
    LEAST = 3,  /* steps, */
    WARMUP = 2, /* behind so many that do not count */
    MOST = 24,
    LOOPS = 6,     /* at least, of */
    BUNCHES = 3,   /* of turns of the reference loop */
    MOST_RANKS = 8 /* that run a row together: its layers are not cut into more parts */
};

typedef struct row {
    const char *model, *words, *plan;
} row;

/* Rows with %d in their plans' words are run by all ranks together, as many as stand there then; others by each
 * rank for itself. They have what one rank never runs: parts with halos, packing, sums. */
static const row spread[] = {
    {"resnet50", "image=3x64x64 classes=100", "batch=4 momentum=0.9"},
    {"resnet-cifar", "depth=8", "batch=16 momentum=0.9 mesh=h%d"},
    {"resnet-cifar", "depth=8", "batch=16 momentum=0.9 mesh=c%d channels=channel"},
    {"gpt", "tokens=96 classes=512 layers=1 width=256 heads=8", "batch=4 mesh=c%d"},
    {"resnet-cifar", "depth=8", "batch=16 momentum=0.9 norm=2 micro=4 phases=no"},
    {"resnet-cifar", "depth=8 width=32", "batch=8 phases=yes norm=4 micro=2"},
    {"resnet-cifar", "depth=8 width=32", "batch=16 mesh=c%d channels=filter zero=3"},
    {"gpt", "tokens=96 classes=2000 layers=1 width=256 heads=4", "batch=4 optimizer=adam"},
    {"gpt", "tokens=32 classes=500 layers=1 width=128 heads=2", "batch=1 optimizer=adam"},
    {"unet", "image=3x64x64 width=32", "batch=2 momentum=0.9"},
    {"vgg11", "image=3x64x64 width=32 hidden=1024 classes=100", "batch=4 momentum=0.9"},
    {"cnn", "", "batch=4"},
    {"resnet-cifar", "depth=8", "batch=4 momentum=0.9"},
    {"cosmoflow", "image=4x32x32x32 pools=4", "batch=2 optimizer=adamw"},
    {"unet3d", "image=1x16x16x16 width=16", "batch=2 momentum=0.9 norm=1 micro=2 phases=no"},
    {"unet3d", "image=1x32x16x16 width=8", "batch=2 momentum=0.9 mesh=d%d"},
    {"amoebanet-d", "image=3x64x64 layers=3 filters=64 classes=100", "batch=4 momentum=0.9"},
    {"gpt", "tokens=256 classes=500 layers=1 width=384 heads=6", "batch=2 momentum=0.9"},
    {"resnet50", "image=3x128x128 classes=100", "batch=1 momentum=0.9"},
    {"vit_b_32", "image=3x64x64 patch=8 layers=1 width=384 heads=6 mlp=1536 classes=100",
     "batch=4 optimizer=adamw"},
    {"vgg11", "image=3x128x128 width=64 hidden=256 classes=100", "batch=1 momentum=0.9"},
    {"unet", "image=3x128x128 width=16 bn", "batch=2"},
    {"unet3d", "image=1x32x32x32 width=16", "batch=1 momentum=0.9"},
    {"unet3d", "image=1x16x16x16 width=16", "batch=2 momentum=0.9 mesh=c%d channels=filter"},
    {"alexnet", "image=3x64x64 classes=100", "batch=6 momentum=0.9 micro=2"},
    {"alexnet", "image=3x64x64 classes=100", "batch=12 momentum=0.9 replicas=%d zero=3"},
    {"gpt", "tokens=64 classes=500 layers=1 width=256 heads=8", "batch=2 momentum=0.9 mesh=w%d"},
    {"relaynet", "image=1x32x32", "batch=2 momentum=0.9"},
    {"relaynet", "image=1x64x32", "batch=2 momentum=0.9 mesh=h%d"},
    {"unet", "image=3x32x32 width=16", "batch=2 momentum=0.9 mesh=c%d channels=filter"},
    {"vit_b_32", "image=3x64x64 patch=16 layers=1 width=640 heads=10 mlp=2560 classes=100",
     "batch=4 momentum=0.9"},
    {"inception-v3", "image=3x75x75 aux=0 classes=100", "batch=2 momentum=0.9"},
    {"cosmoflow", "image=4x48x48x48 pools=4", "batch=1 momentum=0.9"},
};

/* All their messages are small: what they take is what posting takes, and going on behind them. */
static const row talkative[] = {
    {"resnet-cifar", "depth=8 width=8 image=3x16x16", "batch=4 mesh=h%d"},
    {"cnn", "", "batch=2 mesh=c%d channels=channel"},
};

typedef struct probing {
    meg_device *device;
    meg_comm *comm;
    meg_error *error;
    double seconds;    /* of this process' own, for each thread */
    double wall;       /* that it may take at most */
    double begin, ran; /* when it began, by both clocks */
    meg_timings *timings;
    meg_probe_host alone, together; /* what issuing takes */
    meg_prices *links;              /* lines of messages between ranks; NULL: one rank */
    meg_machine machine;
    meg_drift *drift; /* NULL: a kind of plain C, not made for speed */
    meg_rates rates;
} probing;

static bool many(const probing *p)
{
    return p->comm && meg_comm_size(p->comm) > 1;
}

static double left_of(double seconds)
{
    return fmax(seconds / 2, seconds - REST);
}

/* The first rank's clock decides for all; all begin the row together. */
static meg_status go_on(const probing *p, bool *more)
{
    double wall = meg_clock() - p->begin, own = meg_clock_process() - p->ran;
    *more = own < left_of(p->seconds) * meg_device_threads(p->device) && wall < left_of(p->wall);
    if (!many(p)) return MEG_OK;
    MEG_TRY(p->error, meg_comm_share(p->comm, p->error, 0, more, sizeof *more));
    return meg_comm_barrier(p->comm, p->error);
}

static int ranks_of(const probing *p)
{
    return p->comm ? meg_comm_size(p->comm) : 1;
}

/* A network that so many ranks cannot share, which all of them find: the other rows will do. */
static meg_status leave_out(const probing *p)
{
    meg_error_clear(p->error);
    return MEG_OK;
}

/* Over slow links the steps of some rows would take minutes, nearly all of them messages, which are timed by
 * themselves. The first rank decides. */
static meg_status find_slow(const probing *p, const meg_plan *plan, bool *slow)
{
    double messages = meg_waits_of(plan, MEG_ENTRY_TRAIN, &p->machine).seconds;
    *slow = messages * (LEAST + WARMUP) > SLOW * p->seconds;
    return meg_comm_share(p->comm, p->error, 0, slow, sizeof *slow);
}

static meg_status probe_row(probing *p, const row *r, meg_probe_host *host)
{
    meg_graph *g = NULL;
    meg_plan *plan = NULL;
    char words[256];
    const char *mark = strstr(r->plan, "%d");
    meg_profile profile = meg_profile_of(p->device);
    meg_probe_site site = {.device = p->device,
                           .comm = mark ? p->comm : NULL,
                           .seconds = ROW * p->seconds,
                           .least = LEAST,
                           .most = MOST,
                           .host = host,
                           .machine = &p->machine,
                           .drift = p->drift,
                           .turn_work = p->rates.turn_work};
    meg_world world = {mark ? meg_comm_rank(p->comm) : 0, mark ? ranks_of(p) : 1};
    int before = (int)(mark ? mark - r->plan : (ptrdiff_t)strlen(r->plan));
    snprintf(words, sizeof words, "%.*s", before, r->plan);
    if (mark)
        snprintf(words + before, sizeof words - (size_t)before, "%d%s", world.ranks, mark + 2);
    meg_status status = meg_zoo_build(p->error, r->model, r->words, &g);
    if (status == MEG_OK)
        status = meg_plan_make_for(g, p->error, &profile, &world, words, 0, &plan);
    bool slow = false;
    if (status != MEG_OK && mark) status = leave_out(p);
    else if (status == MEG_OK && mark) status = find_slow(p, plan, &slow);
    if (status == MEG_OK && plan && !slow)
        status = meg_probe_plan(plan, p->error, &site, p->timings, NULL);
    meg_plan_destroy(plan);
    meg_graph_destroy(g);
    return status;
}

/* Of each rate the median over the ranks. */
static meg_status share_rates(const probing *p, meg_rates *r)
{
    enum {
        RATES = sizeof *r / sizeof(double)
    };
    if (!many(p)) return MEG_OK;
    size_t ranks = (size_t)meg_comm_size(p->comm);
    meg_rates *all = calloc(2 * ranks, sizeof *all);
    MEG_CHECK(p->error, all, MEG_ENOMEM, "no memory for the rates of %zu ranks", ranks);
    double *column = (double *)(all + ranks);
    meg_status status = meg_comm_gather(p->comm, p->error, r, sizeof *r, all);
    for (size_t k = 0; k < RATES && status == MEG_OK; k++) {
        for (size_t i = 0; i < ranks; i++)
            column[i] = ((const double *)&all[i])[k];
        ((double *)r)[k] = meg_median(column, ranks);
    }
    free(all);
    return status;
}

static meg_status agree(const probing *p, meg_status status)
{
    if (!many(p)) return status;
    if (status == MEG_OK) meg_error_clear(p->error);
    return meg_comm_agree(p->comm, p->error);
}

/* Looks for a while: rows are measured at the pace that the machine has when others leave it alone. */
static meg_status probe_loop(probing *p)
{
    if (!meg_device_kind_of(p->device)->describe) return MEG_OK;
    MEG_TRY(p->error, agree(p, meg_drift_new(p->device, p->comm, p->error, &p->drift)));
    double begin = meg_clock();
    bool more = true;
    for (int i = 0; more; i++) {
        meg_drift_time now;
        MEG_TRY(p->error, meg_drift_look(p->drift, p->error, BUNCHES, &now));
        more = i + 1 < LOOPS || meg_clock() - begin < LOOK * p->seconds;
        if (many(p)) MEG_TRY(p->error, meg_comm_share(p->comm, p->error, 0, &more, sizeof more));
    }
    p->rates.turn_work = meg_drift_calm(p->drift);
    return MEG_OK;
}

/* What is left of the time in which nobody works, when what the links take is taken off. Between nodes that is what
 * messages wait for one another there, which a replay finds by itself: nothing is said of going on. */
static double resume_of(const probing *p, const meg_probe_host *t)
{
    bool network = many(p) && meg_comm_nodes(p->comm) > 1;
    return t->waits && !network ? fmax(t->idle - t->known, 0) / (double)t->waits : 0;
}

/* What is left of a step with messages, when its kernels are taken off, is for the messages. */
static void settle_host(const probing *p, meg_rates *r)
{
    const meg_probe_host *a = &p->alone, *t = &p->together;
    r->issue = a->kernels ? a->seconds / (double)a->kernels : 0;
    double rest = t->seconds - r->issue * (double)t->kernels;
    r->post = t->notes && rest > 0 ? rest / (double)t->notes : 0;
    r->resume = resume_of(p, t);
}

/* Prices are those of the machine as it usually was meanwhile, not of its first moment; of several paces, of the one
 * that was looked for. */
static void settle_pace(probing *p)
{
    if (!p->drift) return;
    meg_drift_time usual = meg_drift_usual(p->drift, p->rates.turn_work);
    meg_timings_scale(p->timings, usual.work / p->rates.turn_work);
    p->rates.turn = usual.wall;
    p->rates.turn_work = usual.work;
}

/* Messages are timed first: of what a step with many of them takes the rest is not theirs. */
static meg_status probe_links(probing *p, const meg_prices_head *head)
{
    p->links = meg_prices_new(head);
    p->machine.nodes = meg_comm_nodes(p->comm);
    p->machine.ranks = (meg_comm_size(p->comm) + p->machine.nodes - 1) / p->machine.nodes;
    MEG_TRY(p->error, meg_links_probe(p->comm, p->error, p->links));
    return meg_links_read(p->error, p->links, &p->machine);
}

static meg_status probe_all(probing *p, meg_prices_head *head)
{
    bool more = true;
    meg_rates_probe(p->device, &p->rates);
    p->machine = meg_machine_default;
    if (many(p)) MEG_TRY(p->error, probe_links(p, head));
    MEG_TRY(p->error, probe_loop(p));
    for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) {
        MEG_TRY(p->error, go_on(p, &more));
        if (!more && i > 0) break; /* a book without any model is none */
        bool together = strstr(spread[i].plan, "%d");
        if (together && (ranks_of(p) == 1 || ranks_of(p) > MOST_RANKS)) continue;
        MEG_TRY(p->error, agree(p, probe_row(p, &spread[i], together ? NULL : &p->alone)));
    }
    for (size_t i = 0; i < sizeof talkative / sizeof *talkative; i++)
        if (many(p) && ranks_of(p) <= MOST_RANKS)
            MEG_TRY(p->error, agree(p, probe_row(p, &talkative[i], &p->together)));
    settle_host(p, &p->rates);
    settle_pace(p);
    MEG_TRY(p->error, share_rates(p, &p->rates));
    head->rates = p->rates;
    return meg_timings_share(p->timings, p->comm, p->error);
}

/* The first rank's disk stands for all, in the folder where the book will be if there is one. */
static meg_status probe_disk(const probing *p, const meg_prices_head *head, meg_prices *book)
{
    char folder[MEG_PRICES_PATH], line[256];
    const char *other = getenv("TMPDIR");
    meg_error why = {0};
    meg_disk found;
    bool kept = meg_prices_path(head, folder);
    if (kept) *strrchr(folder, '/') = '\0';
    if (!kept || access(folder, W_OK) != 0)
        snprintf(folder, sizeof folder, "%s", other && *other ? other : "/tmp");
    if (!p->comm || meg_comm_rank(p->comm) == 0) {
        if (meg_disk_probe(&why, folder, &meg_disk_usual, &found) == MEG_OK)
            meg_disk_line(&found, line, sizeof line);
        else snprintf(line, sizeof line, "disk unknown: %.200s", why.message);
    }
    if (many(p)) MEG_TRY(p->error, meg_comm_share(p->comm, p->error, 0, line, sizeof line));
    meg_prices_add_link(book, line);
    return MEG_OK;
}

meg_status meg_machine_probe(meg_device *d, meg_comm *c, meg_error *e, const meg_probe_time *time,
                             meg_prices **out)
{
    *out = NULL;
    meg_prices_head head = meg_machine_head(d, c);
    probing p = {.device = d,
                 .comm = c,
                 .error = e,
                 .seconds = time->seconds,
                 .wall = time->patience * time->seconds,
                 .begin = meg_clock(),
                 .ran = meg_clock_process(),
                 .timings = meg_timings_new()};
    meg_status status = probe_all(&p, &head);
    if (status == MEG_OK) {
        *out = meg_prices_new(&head);
        meg_timings_prices(p.timings, *out);
        meg_timings_models(p.timings, *out, true);
        for (int i = 0; p.links && meg_prices_link_at(p.links, i); i++)
            meg_prices_add_link(*out, meg_prices_link_at(p.links, i));
        status = probe_disk(&p, &head, *out);
    }
    if (status != MEG_OK) {
        meg_prices_free(*out);
        *out = NULL;
    }
    meg_prices_free(p.links);
    meg_timings_free(p.timings);
    meg_drift_free(p.drift);
    return status;
}
