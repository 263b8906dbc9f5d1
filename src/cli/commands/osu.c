/* `megalith osu FILE,FILE..`: what the OSU Micro-Benchmarks printed, as a link of a machine; and how well the formulas
 * of sums, with this link, agree with osu_allreduce.
 */
#include "machine/osu.h"
#include "cli/command.h"
#include "machine/textfile.h"
#include "plan/replay/transit.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct settings {
    char allreduce[MEG_TEXT];
    int64_t ranks, pernode;
} settings;

enum {
    PIECE = 1 << 20 /* bytes of a message: as large as they are */
};

static meg_status load(meg_error *e, const char *name, meg_osu *out)
{
    char *text = NULL;
    size_t size = 0;
    MEG_TRY(e, meg_textfile_read(e, "", name, &text, &size));
    meg_status status = meg_osu_read(e, name, text, size, out);
    free(text);
    return status;
}

/* Seconds by the algorithm that is quickest at this size, as a library would choose. */
static double predict(const meg_machine *m, const meg_transit_sum *s, const char **name)
{
    double least = 0;
    *name = "";
    for (int i = 0; meg_allreduce_at(i); i++) {
        meg_transit_sum one = *s;
        one.kind = meg_allreduce_at(i);
        if (!one.kind->step) continue;
        meg_transit t = meg_transit_of_sum(m, &one);
        double seconds = t.latency + t.seconds;
        if (**name && seconds >= least) continue;
        least = seconds;
        *name = one.kind->name;
    }
    return least;
}

static void print_sums(const settings *o, const meg_osu *sums, const meg_link *link)
{
    meg_machine m = meg_machine_default;
    m.ranks = o->pernode;
    m.nodes = (o->ranks + o->pernode - 1) / o->pernode;
    m.inside = m.between = *link;
    int *rank = calloc((size_t)o->ranks, sizeof *rank);
    if (!rank) abort();
    for (int r = 0; r < o->ranks; r++)
        rank[r] = r;
    printf("%12s %12s %12s\n", "bytes", "measured us", "predicted");
    for (int i = 0; i < sums->rows; i++) {
        const char *name;
        meg_transit_sum s = {NULL, (int)o->ranks, rank, sums->row[i].bytes / 4, 4, PIECE, 1};
        if (s.count == 0) continue;
        double seconds = predict(&m, &s, &name), measured = sums->row[i].figure;
        printf("%12" PRId64 " %12.2f %12.2f  %+.0f %%  %s\n", sums->row[i].bytes, 1e6 * measured,
               1e6 * seconds, 100 * (seconds / measured - 1), name);
    }
    free(rank);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    const settings *o = a->settings;
    char text[4096];
    meg_machine m;
    meg_osu sums = {.kind = MEG_OSU_ALLREDUCE};
    MEG_CHECK(e, !*o->allreduce == !o->ranks, MEG_EARG,
              "--allreduce and --ranks belong together: the benchmark does not print its ranks");
    int used = snprintf(text, sizeof text, "between=osu:%s", a->place[0]);
    MEG_CHECK(e, used < (int)sizeof text, MEG_EARG, "names of %d letters", used);
    MEG_TRY(e, meg_machine_read(e, "osu", text, &m));
    if (o->ranks) MEG_TRY(e, load(e, o->allreduce, &sums));
    MEG_CHECK(e, sums.kind == MEG_OSU_ALLREDUCE, MEG_EARG, "%s is an output of %s", o->allreduce,
              meg_osu_name(sums.kind));
    meg_link_print(&m.between, text, sizeof text);
    printf("%s\n", text);
    if (o->ranks) print_sums(o, &sums, &m.between);
    return MEG_OK;
}

#define AT(member) offsetof(settings, member)
static const meg_param PARAMS[] = {
    {"allreduce", MEG_PARAM_TEXT, AT(allreduce), "",
     "an output of osu_allreduce, to compare predicted sums with", NULL, 0, 0},
    {"ranks", MEG_PARAM_INT, AT(ranks), "0", "of that allreduce", NULL, 0, 1 << 16},
    {"pernode", MEG_PARAM_INT, AT(pernode), "1", "of them on a node", NULL, 1, 1 << 16},
    {0},
};

const meg_command meg_command_osu = {
    .name = "osu",
    .usage = "FILE[,FILE..] [--allreduce FILE --ranks N]",
    .doc = "makes a link of a machine of what the OSU Micro-Benchmarks print",
    .more = "The line that is printed stands in a description: inside=... or between=...; there, "
            "osu:FILE,FILE\n"
            "does the same. Of osu_latency, which must be among them, come the latency and the "
            "bandwidth of\n"
            "one message by size; of osu_mbw_mr, osu_bw or osu_bibw what all messages of a node "
            "share.\n",
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
