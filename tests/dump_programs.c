/* Hashes of the programs of all ranks, so that a change of the planner's code can be held to "same
 * programs as before". Plans only; nothing is trained. ./do hashes runs all four lists:
 *
 *     dump_programs --matrix              the models and plans of tests/matrix.h
 *                   --mesh-list           those of tests/mesh_list.h
 *                   --fuzz N SEED         N random graphs under random plans, as ./do fuzz --pipes
 *                   --fuzz-mesh N SEED    N convolutional ones under meshes, as ./do fuzz --meshes
 *                   --large               some jobs of more ranks, for --classes
 *         --only TEXT                     cases whose name has this text
 *         --print                         their text (tests/canonical.h), to be compared by diff
 *         --classes                       classes of ranks are held against all ranks' programs
 *
 * A case is one line: name, ranks, hash of the programs but their tags, hash of the tags, bytes of each
 * rank's arena; tabs between. Each plan is made twice: for `cpu` as it is trained, and for `ref64` as it
 * is tested, with gradients that are kept. What the cpu's kernels like follows from instruction sets,
 * threads and Winograd's use, which are fixed here, and never from measured rates.
 */
#include "canonical.h"
#include "classes_check.h"
#include "fuzz_case.h"
#include "fuzz_matrix.h"
#include "fuzz_mesh.h"
#include "mesh_list.h"

enum {
    KINDS = 2,
    NAME = 2048,
    LARGE_MOST = 64 /* ranks */
};

typedef struct kind { /* of plans for the same words */
    const char *device, *words;
    meg_device *opened;
} kind;

typedef struct dump {
    kind kind[KINDS];
    bool print, show; /* the text; on a terminal how far it is */
    bool classes;
    int wrong;
    int64_t ranks, found, least; /* ranks, their classes, and how many would do */
    int64_t broken, refused;     /* lists of events, by both proofs */
    const char *only;            /* NULL: all */
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

static void check_classes(dump *d, const kind *k, const job *j, const char *name)
{
    meg_profile profile = meg_profile_of(k->opened);
    char words[NAME];
    uint64_t strict[LARGE_MOST], loose[LARGE_MOST];
    snprintf(words, sizeof words, "%s %s", k->words, j->words);
    meg_plan *plan = NULL;
    for (int r = 0; r < j->ranks; r++) {
        meg_error e = {0};
        meg_world world = {r, j->ranks};
        meg_plan_destroy(plan);
        plan = NULL;
        if (meg_plan_make_for(j->graph, &e, &profile, &world, words, j->samples, &plan) != MEG_OK)
            return;
        strict[r] = classes_hash(plan, false);
        loose[r] = classes_hash(plan, true);
    }
    meg_classes *c = meg_classes_new(plan);
    d->ranks += j->ranks;
    d->found += c->count;
    d->least += classes_least(loose, j->ranks);
    meg_classes_free(c);
    d->wrong += !classes_agree(name, plan, strict, loose) ||
                !classes_prove(name, plan, &d->broken, &d->refused);
    meg_plan_destroy(plan);
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
    if (d->classes && j->ranks <= LARGE_MOST) check_classes(d, k, j, name);
    if (d->classes) return;
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

/* More tiles and replicas than kinds of them. */
static void dump_large(dump *d)
{
    static const struct {
        const char *model, *options, *words;
        int ranks;
        int64_t samples;
    } list[] = {
        {"resnet-cifar", "depth=20 image=3x64x64 classes=5 width=2",
         "batch=4 norm=1 micro=2 mesh=4x4 replicas=2", 32, 7},
        {"resnet-cifar", "depth=20 image=3x64x64 classes=5 width=2",
         "batch=4 norm=1 mesh=4x4 wide=2 momentum=0.9 zero=1", 16, 0},
        {"resnet-cifar", "depth=20 version=2 image=3x32x32 classes=5 width=2",
         "batch=44 norm=1 micro=2 stages=4 mesh=1x2 replicas=8", 64, 50},
        {"unet", "image=1x128x128 classes=3 width=2",
         "batch=4 micro=2 stages=2 mesh=4x4 replicas=2", 64, 5},
        {"unet", "image=1x128x64 classes=3 width=2 bn=1",
         "batch=12 norm=1 micro=2 stages=2 mesh=4x1 schedule=chimera replicas=6", 48, 0},
        {"unet3d", "image=1x32x32x32 classes=3 width=2", "batch=2 mesh=2x4x4", 32, 0},
        {"gpt", "tokens=8 classes=16 layers=8 heads=4 width=32",
         "batch=24 micro=3 stages=4 mesh=c4 replicas=4 optimizer=adam zero=1", 64, 30},
        {"gpt", "tokens=8 classes=16 layers=8 heads=4 width=32",
         "batch=24 micro=3 stages=2 mesh=c2 replicas=8 optimizer=adam zero=3", 32, 0},
        {"vgg11", "image=3x128x128 classes=5 hidden=16 width=2",
         "batch=20 micro=2 stages=2 mesh=4x2,n2 replicas=5", 50, 0},
        {"cnn", "", "batch=64 replicas=48", 48, 100},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[NAME];
        meg_graph *g = network_zoo(list[i].model, list[i].options);
        snprintf(name, sizeof name, "%s %s: %s", list[i].model, list[i].options, list[i].words);
        dump_job(d, &(job){name, g, list[i].words, list[i].ranks, list[i].samples});
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
        else if (strcmp(argv[at], "--classes") == 0) d->classes = true;
        else if (strcmp(argv[at], "--only") == 0 && at + 1 < argc) d->only = argv[++at];
        else return false;
    }
    return true;
}

static int usage(void)
{
    fputs("usage: dump_programs --matrix|--mesh-list|--large|--fuzz N SEED|--fuzz-mesh N SEED "
          "[--only TEXT] [--print|--classes]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    dump d = {.kind = {{"cpu", "", NULL}, {"ref64", "keep_grads=1", NULL}}};
    const char *list = argc > 1 ? argv[1] : "";
    bool plans = strcmp(list, "--matrix") == 0, meshes = strcmp(list, "--mesh-list") == 0;
    bool pipes = strcmp(list, "--fuzz") == 0, fuzz = pipes || strcmp(list, "--fuzz-mesh") == 0;
    bool large = strcmp(list, "--large") == 0;
    if ((!plans && !meshes && !fuzz && !large) || (fuzz && argc < 4)) return usage();
    if (!read_words(&d, argc, argv, fuzz ? 4 : 2)) return usage();
    fix_choices();
    setvbuf(stdout, NULL, d.print ? _IOFBF : _IOLBF, 1 << 16); /* a crash shows where it was */
    d.show = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    if (!open_devices(&d)) return 2;
    if (plans) dump_matrix(&d, matrix_at_plans);
    if (meshes) dump_matrix(&d, mesh_at);
    if (large) dump_large(&d);
    if (fuzz)
        dump_fuzz(&d, pipes ? fuzz_make_pipe : mesh_case_of, list + 2, strtoll(argv[2], NULL, 10),
                  strtoull(argv[3], NULL, 10));
    if (d.show) fputs("\r\033[K", stderr);
    for (int i = 0; i < KINDS; i++)
        meg_device_close(d.kind[i].opened);
    if (d.classes)
        printf("%d cases, %d wrong; %" PRId64 " ranks of %" PRId64 " classes, of which %" PRId64
               " would do; of %" PRId64 " broken lists %" PRId64 " refused\n",
               d.cases, d.wrong, d.ranks, d.found, d.least, d.broken, d.refused);
    return d.cases == 0 || d.wrong > 0;
}
