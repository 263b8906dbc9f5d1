/* Launching: see launch.h. What is asked for is translated by a table: each launcher has a row, each
 * of its words a line that says when it is needed.
 *
 * No launcher pins: ranks share the cores of a node themselves (comm/cores.c), which works alike
 * everywhere, oversubscribed or not. Open MPI's words are those that both 4 and 5 take.
 */
#define _GNU_SOURCE /* environ */
#include "cli/launch/launch.h"
#include "base/option.h"
#include "comm/comm.h"
#include "machine/memory.h"
#include "machine/processors.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef enum when {
    NEVER, /* ends the list */
    ALWAYS,
    PER_NODE, /* ranks per node were given */
    ANYWHERE, /* they were not */
    MACHINES, /* there is a file with hosts */
    ROOT,     /* the user is root */
    CROWDED,  /* more ranks on a node than cores */
    WHENS
} when;

typedef struct word {
    when when;
    const char *flag, *value; /* value NULL: none. @n ranks, @p per node, @m the file, in either */
} word;

enum {
    PROGRAMS = 3,
    WORDS = 12,
    LONGEST = 4096
};

typedef struct launcher {
    const char *mpi;
    bool slurm;                    /* for use within an allocation */
    const char *program[PROGRAMS]; /* the first that is here */
    const char *sign;              /* in what --version prints; NULL: is not asked */
    const char *passes;            /* flag that hands a variable of the environment on to other
                                      hosts; NULL: all are */
    word word[WORDS];
} launcher;

/* How SLURM starts ranks that find one another by this interface. */
#define SRUN(interface)                                                                            \
    {                                                                                              \
        {ALWAYS, "--mpi=" interface, NULL}, {ALWAYS, "--ntasks=@n", NULL},                         \
            {PER_NODE, "--ntasks-per-node=@p", NULL}, {MACHINES, "--nodelist=@m", NULL},           \
            {CROWDED, "--overcommit", NULL}, {ALWAYS, "--cpu-bind=none", NULL},                    \
        {                                                                                          \
            ALWAYS, "--kill-on-bad-exit=1", NULL                                                   \
        }                                                                                          \
    }

static const launcher LAUNCHERS[] = {
    {.mpi = "openmpi", .slurm = true, .program = {"srun"}, .word = SRUN("pmix")},
    {.mpi = "mpich", .slurm = true, .program = {"srun"}, .word = SRUN("pmi2")},
    {.mpi = "openmpi",
     .program = {"mpirun.openmpi", "mpirun"},
     .sign = "(Open", /* "mpirun (Open MPI) 5.0.3", "mpirun (OpenRTE) 4.1.4" */
     .passes = "-x",
     .word = {{ALWAYS, "--quiet", NULL}, /* our own message says what was wrong */
              {ROOT, "--allow-run-as-root", NULL},
              {MACHINES, "--hostfile", "@m"},
              {ALWAYS, "-n", "@n"},
              {PER_NODE, "--map-by", "ppr:@p:node:OVERSUBSCRIBE"},
              {ANYWHERE, "--map-by", "slot:OVERSUBSCRIBE"},
              {ALWAYS, "--bind-to", "none"},
              {CROWDED, "--mca mpi_yield_when_idle", "1"}}},
    {.mpi = "mpich",
     .program = {"mpirun.mpich", "mpiexec.hydra", "mpirun"},
     .sign = "HYDRA",
     .word = {{MACHINES, "-f", "@m"}, {ALWAYS, "-n", "@n"}, {PER_NODE, "-ppn", "@p"}}},
};

typedef struct line { /* a command line that grows */
    meg_pool *pool;
    char **at;
    size_t count, room;
} line;

/* ---- finding ---- */

/* Is there an executable of this name, in PATH unless it names a folder? */
static bool find_program(const char *name)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    if (strchr(name, '/')) return access(name, X_OK) == 0;
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, path, name);
        if (access(file, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

/* "mpirun" may be anybody's. */
static bool signs(const char *name, const char *sign)
{
    char command[128], text[512];
    if (!sign || strchr(name, '.')) return true; /* the name says it */
    snprintf(command, sizeof command, "%s --version 2>&1", name);
    FILE *f = popen(command, "r");
    if (!f) return false;
    size_t got = fread(text, 1, sizeof text - 1, f);
    text[got] = '\0';
    pclose(f);
    return strstr(text, sign) != NULL;
}

static const char *program_of(const launcher *l)
{
    for (int i = 0; i < PROGRAMS && l->program[i]; i++)
        if (find_program(l->program[i]) && signs(l->program[i], l->sign)) return l->program[i];
    return NULL;
}

const char *meg_launch_program(const char *mpi)
{
    bool slurm = getenv("SLURM_JOB_ID") && find_program("srun");
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++)
        if (LAUNCHERS[i].slurm == slurm && strcmp(mpi, LAUNCHERS[i].mpi) == 0)
            return program_of(&LAUNCHERS[i]);
    return NULL;
}

/* Of the MPI that was asked for, or of the first that this build can use. */
static meg_status choose(meg_error *e, const char *mpi, const launcher **out, const char **program)
{
    const char *wish = getenv("MEGALITH_MPI");
    bool slurm = getenv("SLURM_JOB_ID") && find_program("srun");
    if (!*mpi && wish) mpi = wish;
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
        const launcher *l = &LAUNCHERS[i];
        if (l->slurm != slurm || (*mpi && strcmp(mpi, l->mpi) != 0)) continue;
        if (!*mpi && !meg_comm_has(l->mpi)) continue;
        *program = program_of(l);
        *out = l;
        if (*program) return MEG_OK;
    }
    return meg_fail(e, MEG_EUNSUPPORTED,
                    "there is no launcher of %s here: install one, of the MPI that Megalith was "
                    "built with (Debian: openmpi-bin for mpirun.openmpi, mpich for mpirun.mpich)",
                    *mpi ? mpi : "any MPI");
}

/* ---- writing the line ---- */

static void add(line *to, const char *text)
{
    to->at = meg_grow(to->at, &to->room, to->count + 2, sizeof *to->at);
    to->at[to->count++] = meg_pool_text(to->pool, "%s", text);
    to->at[to->count] = NULL;
}

/* A word with what stands for @n, @p, @m. */
static void add_filled(line *to, const meg_launch *l, const char *text)
{
    char filled[LONGEST] = "", number[32];
    for (const char *at = text; *at; at++) {
        size_t used = strlen(filled);
        const char *piece = NULL;
        if (at[0] == '@' && at[1] == 'm') piece = l->machines;
        if (at[0] == '@' && (at[1] == 'n' || at[1] == 'p')) {
            snprintf(number, sizeof number, "%" PRId64, at[1] == 'n' ? l->np : l->per_node);
            piece = number;
        }
        if (piece) snprintf(filled + used, sizeof filled - used, "%s", piece), at++;
        else snprintf(filled + used, sizeof filled - used, "%c", *at);
    }
    add(to, filled);
}

/* "--mca name" are two. */
static void add_flag(line *to, const meg_launch *l, const char *text)
{
    const char *space = strchr(text, ' ');
    if (space) add(to, meg_pool_text(to->pool, "%.*s", (int)(space - text), text));
    add_filled(to, l, space ? space + 1 : text);
}

/* Variables that ranks on other hosts should see. */
static void add_environment(line *to, const char *flag)
{
    static const char *const wanted[] = {"MEGALITH_",  "OMP_",       "GOMP_",
                                         "KMP_",       "DNNL_",      "LD_LIBRARY_PATH",
                                         "PYTHONPATH", "VIRTUAL_ENV"};
    for (char **at = environ; *at; at++)
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            if (strncmp(*at, wanted[i], strlen(wanted[i])) != 0) continue;
            add(to, flag);
            add(to, meg_pool_text(to->pool, "%.*s", (int)strcspn(*at, "="), *at));
            break;
        }
}

static int cores_here(void)
{
    meg_processors mine = meg_processors_mine();
    return meg_processors_count(&mine);
}

static void write_line(line *to, const meg_launch *l, const launcher *by, int hosts)
{
    int64_t on_node = l->per_node ? l->per_node : (l->np + hosts - 1) / hosts;
    const bool holds[WHENS] = {[ALWAYS] = true,
                               [PER_NODE] = l->per_node > 0,
                               [ANYWHERE] = l->per_node == 0,
                               [MACHINES] = l->machines != NULL,
                               [ROOT] = geteuid() == 0,
                               [CROWDED] = on_node > cores_here()};
    for (int i = 0; i < WORDS && by->word[i].when != NEVER; i++) {
        const word *w = &by->word[i];
        if (!holds[w->when]) continue;
        add_flag(to, l, w->flag);
        if (w->value) add_filled(to, l, w->value);
    }
    if (by->passes && l->machines) add_environment(to, by->passes);
}

/* As a shell would take it. */
static void print_line(FILE *out, char *const words[])
{
    for (int i = 0; words[i]; i++) {
        const char *plain =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,/:@%";
        bool quote = !*words[i] || words[i][strspn(words[i], plain)];
        if (i) fputc(' ', out);
        if (quote) fputc('\'', out);
        for (const char *at = words[i]; *at; at++)
            if (*at == '\'') fputs("'\\''", out);
            else fputc(*at, out);
        if (quote) fputc('\'', out);
    }
    fputc('\n', out);
}

/* ---- running ---- */

static meg_status become(meg_error *e, const meg_launch *l, char *const words[])
{
    if (l->dry_run) {
        print_line(stdout, words);
        return MEG_OK;
    }
    if (l->np > 1) {
        fputs("megalith runs ", stderr);
        print_line(stderr, words);
    }
    fflush(NULL);
    if (l->np > 1) return meg_supervise(e, words, &l->care);
    execvp(words[0], words);
    return meg_fail(e, MEG_EIO, "cannot run %s: %s", words[0], strerror(errno));
}

/* Hosts enough, and all of them there? */
static meg_status check_hosts(meg_error *e, const meg_launch *l, bool slurm, int *hosts)
{
    *hosts = 1;
    if (l->machines) MEG_TRY(e, meg_hosts_count(e, l->machines, hosts));
    int64_t needed = l->per_node ? (l->np + l->per_node - 1) / l->per_node : 1;
    MEG_CHECK(e, slurm || needed <= *hosts, MEG_EARG,
              "-np %" PRId64 " with -npernode %" PRId64 " needs %" PRId64 " hosts, but %s names %d",
              l->np, l->per_node, needed, l->machines ? l->machines : "no machinefile (-m)",
              l->machines ? *hosts : 0);
    if (l->machines && !slurm && !l->dry_run) return meg_hosts_check(e, l->machines);
    return MEG_OK;
}

/* How many ranks this machine has room for, whatever they do: memory of a process and its libraries before
 * anything is planned, and its threads. Launchers that find out themselves hang, or fail in many words. */
static meg_status check_room(meg_error *e, const meg_launch *l)
{
    enum {
        TASKS = 4, /* of a rank: MPI's, the device's and the loader's threads are tasks, too */
        FEW = 64   /* ranks: whatever is planned for them is asked later */
    };
    const int64_t each = 24 << 20; /* bytes */
    struct rlimit tasks;
    char has[32], needs[32];
    int64_t memory = meg_memory_look("").most, fits = memory / each;
    if (l->np <= FEW) return MEG_OK;
    if (fits < FEW) fits = FEW;
    meg_print_bytes(memory, has);
    meg_print_bytes(l->np > INT64_MAX / each ? INT64_MAX : l->np * each, needs);
    MEG_CHECK(e, l->np <= fits, MEG_EARG,
              "-np %" PRId64
              " on one machine takes %s for the processes alone, but it has %s: use -np "
              "%" PRId64 " or less, or name hosts (-m)",
              l->np, needs, has, fits);
    if (getrlimit(RLIMIT_NPROC, &tasks) != 0 || tasks.rlim_cur == RLIM_INFINITY) return MEG_OK;
    fits = (int64_t)tasks.rlim_cur / TASKS;
    MEG_CHECK(e, l->np <= fits, MEG_EARG,
              "-np %" PRId64
              " on one machine takes more processes and threads than its limit, %" PRId64
              " (ulimit -u): use -np %" PRId64 " or less, or name hosts (-m)",
              l->np, (int64_t)tasks.rlim_cur, fits > 0 ? fits : 1);
    return MEG_OK;
}

meg_status meg_launch_run(meg_error *e, meg_pool *pool, const meg_launch *l, char *const program[])
{
    const launcher *by = NULL;
    const char *name = NULL;
    line words = {.pool = pool};
    meg_launch full = *l;
    char place[PATH_MAX];
    int hosts;
    if (l->np == 1 && !l->machines) return become(e, l, program);
    if (l->machines && realpath(l->machines, place)) full.machines = place;
    MEG_TRY(e, choose(e, l->mpi, &by, &name));
    MEG_TRY(e, check_hosts(e, &full, by->slurm, &hosts));
    if (!l->machines && !by->slurm && !l->dry_run) MEG_TRY(e, check_room(e, l));
    /* Launchers say so in many words, or abort; other hosts may have what is not here. */
    MEG_CHECK(e, l->machines || by->slurm || l->dry_run || find_program(program[0]), MEG_EARG,
              "there is no program '%s': name a command of megalith (train, bench, ...) or an "
              "executable",
              program[0]);
    add(&words, name);
    write_line(&words, &full, by, hosts);
    for (int i = 0; program[i]; i++)
        add(&words, program[i]);
    meg_status status = become(e, &full, words.at);
    free(words.at);
    return status;
}

/* ---- -np ---- */

meg_care meg_launch_care(const meg_arguments *a)
{
    return (meg_care){.stops = a->command->stops,
                      .checkpoint = meg_arguments_value(a, MEG_TO_TRAINER, "checkpoint")};
}

meg_status meg_launch_ranks(meg_error *e, const char *text, int64_t *out)
{
    static const meg_param np[] = {{"np", MEG_PARAM_INT, 0, NULL, NULL, NULL, 1, 1 << 20}, {0}};
    return meg_options_set(e, &(meg_form){np, "ranks", NULL}, "np", text, out);
}

meg_status meg_launch_self(meg_error *e, meg_pool *pool, char **out)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    MEG_CHECK(e, length > 0, MEG_EIO, "cannot find this program: %s", strerror(errno));
    path[length] = '\0';
    *out = meg_pool_text(pool, "%s", path);
    return MEG_OK;
}

char **meg_launch_without_np(meg_pool *pool, char *argv[])
{
    size_t count = 0, kept = 0;
    meg_error e;
    while (argv[count])
        count++;
    char **out = meg_pool_alloc(pool, (count + 1) * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        bool dashed = name > argv[i];
        if (dashed && strncmp(name, "np=", 3) == 0) continue;
        if (dashed && strcmp(name, "np") == 0) i++;
        else out[kept++] = argv[i];
    }
    out[kept] = NULL;
    if (meg_launch_self(&e, pool, &out[0]) != MEG_OK) out[0] = argv[0];
    return out;
}
