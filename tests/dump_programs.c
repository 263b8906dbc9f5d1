/* Hashes of the programs of all ranks, so that a change of the planner's code can be held to "same
 * programs as before". Plans only; nothing is trained. ./do hashes runs all four lists:
 *
 *     dump_programs --matrix              the models and plans of tests/matrix.h
 *                   --mesh-list           those of tests/mesh_list.h
 *                   --fuzz N SEED         N random graphs under random plans, as ./do fuzz --pipes
 *                   --fuzz-mesh N SEED    N convolutional ones under meshes, as ./do fuzz --meshes
 *         --only TEXT                     cases whose name has this text
 *         --print                         their text (tests/canonical.h), to be compared by diff
 *
 * A case is one line: name, ranks, hash of the programs but their tags, hash of the tags, bytes of each
 * rank's arena; tabs between. Each plan is made twice: for `cpu` as it is trained, and for `ref64` as it
 * is tested, with gradients that are kept. What the cpu's kernels like follows from instruction sets,
 * threads and Winograd's use, which are fixed here, and never from measured rates.
 */
#include "canonical.h"
#include "fuzz_case.h"
#include "fuzz_matrix.h"
#include "fuzz_mesh.h"
#include "mesh_list.h"

enum {
    KINDS = 2,
    NAME = 2048
};

typedef struct kind { /* of plans for the same words */
    const char *device, *words;
    meg_device *opened;
} kind;

typedef struct dump {
    kind kind[KINDS];
    bool print, show; /* the text; on a terminal how far it is */
    const char *only; /* NULL: all */
    int cases;
} dump;

typedef struct job { /* what all ranks plan */
    const char *name;
    const meg_graph *graph;
    const char *words;
    int ranks;
    int64_t samples;
} job;

/* Adds the programs of all ranks; sets the bytes of each. False: the plan is refused. */
static bool add_ranks(canonical *c, const kind *k, const job *j, int64_t bytes[RANKS_MOST])
{
    meg_profile profile = meg_profile_of(k->opened);
    char words[NAME];
    snprintf(words, sizeof words, "%s %s", k->words, j->words);
    for (int r = 0; r < j->ranks; r++) {
        meg_error e = {0};
        meg_plan *plan = NULL;
        meg_world world = {r, j->ranks};
        if (meg_plan_make_for(j->graph, &e, &profile, &world, words, j->samples, &plan) != MEG_OK)
            return false;
        canonical_plan(c, plan);
        bytes[r] = plan->arena;
        meg_plan_destroy(plan);
    }
    return true;
}

static void dump_kind(dump *d, const kind *k, const job *j)
{
    char name[NAME];
    int64_t bytes[RANKS_MOST];
    canonical c = {.text = d->print ? stdout : NULL};
    snprintf(name, sizeof name, "%s %s", k->device, j->name);
    if (d->only && !strstr(name, d->only)) return;
    d->cases++;
    if (d->show) fprintf(stderr, "\r\033[K%d: %.70s", d->cases, name);
    if (d->print) printf("# %s", name);
    bool good = j->ranks <= RANKS_MOST && add_ranks(&c, k, j, bytes);
    if (d->print) puts(good ? "\n" : "\nrefused\n");
    if (d->print) return;
    printf("%s\t%d\t%016" PRIx64 "\t%016" PRIx64 "\t", name, j->ranks, good ? c.program : 0,
           good ? c.tags : 0);
    for (int r = 0; r < j->ranks && good; r++)
        printf("%s%" PRId64, r ? "," : "", bytes[r]);
    puts(good ? "" : "refused");
}

static void dump_job(dump *d, const job *j)
{
    for (int i = 0; i < KINDS; i++)
        dump_kind(d, &d->kind[i], j);
}

/* ---- lists ---- */

static void dump_group(dump *d, const matrix_model *m, const meg_graph *g,
                       const matrix_group *group)
{
    char name[NAME], words[320];
    for (int i = 0; i < group->plans; i++) {
        ranks_case c = matrix_case(g, group, i, words);
        snprintf(name, sizeof name, "%s %s: %s", m->model, m->options, words);
        dump_job(d, &(job){name, g, words, c.ranks, c.samples});
    }
}

static void dump_matrix(dump *d, matrix_at *at)
{
    const matrix_model *m;
    matrix *plans;
    for (int i = 0; (m = at(i, &plans)); i++, free(plans)) {
        meg_graph *g = network_zoo(m->model, m->options);
        for (int k = 0; k < plans->groups; k++)
            dump_group(d, m, g, &plans->group[k]);
        meg_graph_destroy(g);
    }
}

static void dump_fuzz(dump *d, fuzz_make *make, const char *option, int64_t count, uint64_t seed)
{
    char name[NAME];
    for (uint64_t s = seed; s < seed + (uint64_t)count; s++) {
        fuzz_plan p;
        meg_graph *g = fuzz_draw(make, s, &p);
        if (g->error.status != MEG_OK) fail_msg("seed %" PRIu64 ": %s", s, g->error.message);
        snprintf(name, sizeof name, "%s %" PRIu64 ": %s", option, s, p.many);
        dump_job(d, &(job){name, g, p.many, p.ranks, p.samples});
        meg_graph_destroy(g);
    }
}

/* ---- the command ---- */

/* Before a device is opened; whatever the machine and the environment. */
static void fix_choices(void)
{
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    unsetenv("MEGALITH_WINOGRAD");
}

static bool open_devices(dump *d)
{
    meg_error e = {0};
    if (!__builtin_cpu_supports("avx2")) {
        fputs("dump_programs: the hashes of the cpu's programs are those of AVX2, which this "
              "processor does not have\n",
              stderr);
        return false;
    }
    for (int i = 0; i < KINDS; i++) {
        if (meg_device_open(&e, d->kind[i].device, 1, &d->kind[i].opened) == MEG_OK) continue;
        fprintf(stderr, "dump_programs: %s\n", e.message);
        return false;
    }
    return true;
}

/* Reads the words behind the list's. */
static bool read_words(dump *d, int argc, char **argv, int at)
{
    for (; at < argc; at++) {
        if (strcmp(argv[at], "--print") == 0) d->print = true;
        else if (strcmp(argv[at], "--only") == 0 && at + 1 < argc) d->only = argv[++at];
        else return false;
    }
    return true;
}

static int usage(void)
{
    fputs("usage: dump_programs --matrix|--mesh-list|--fuzz N SEED|--fuzz-mesh N SEED "
          "[--only TEXT] [--print]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    dump d = {.kind = {{"cpu", "", NULL}, {"ref64", "keep_grads=1", NULL}}};
    const char *list = argc > 1 ? argv[1] : "";
    bool plans = strcmp(list, "--matrix") == 0, meshes = strcmp(list, "--mesh-list") == 0;
    bool pipes = strcmp(list, "--fuzz") == 0, fuzz = pipes || strcmp(list, "--fuzz-mesh") == 0;
    if ((!plans && !meshes && !fuzz) || (fuzz && argc < 4)) return usage();
    if (!read_words(&d, argc, argv, fuzz ? 4 : 2)) return usage();
    fix_choices();
    setvbuf(stdout, NULL, d.print ? _IOFBF : _IOLBF, 1 << 16); /* a crash shows where it was */
    d.show = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    if (!open_devices(&d)) return 2;
    if (plans) dump_matrix(&d, matrix_at_plans);
    if (meshes) dump_matrix(&d, mesh_at);
    if (fuzz)
        dump_fuzz(&d, pipes ? fuzz_make_pipe : mesh_case_of, list + 2, strtoll(argv[2], NULL, 10),
                  strtoull(argv[3], NULL, 10));
    if (d.show) fputs("\r\033[K", stderr);
    for (int i = 0; i < KINDS; i++)
        meg_device_close(d.kind[i].opened);
    return d.cases == 0;
}
