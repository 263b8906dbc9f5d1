/* The communicator of the job. The library links no MPI: one plug-in per MPI lies beside it, and
 * the launcher's marks in the environment say which of them this job needs.
 */
#define _GNU_SOURCE /* dladdr */
#include "comm/kind.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct launcher {
    const char *mark;    /* in the environment of the ranks it starts */
    const char *size;    /* where it says how many; NULL: nowhere */
    const char *rank;    /* and which this is */
    const char *library; /* that can talk to it */
} launcher;

/* The first whose mark is there. Open MPI's own launcher sets PMIx marks, too. */
static const launcher LAUNCHERS[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
     "openmpi"},                                                   /* mpirun of Open MPI */
    {"PMI_RANK", "PMI_SIZE", "PMI_RANK", "mpich"},                 /* of MPICH, srun pmi2 */
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "openmpi"}, /* srun --mpi=pmix */
};

typedef struct package {          /* of a library */
    const char *library, *debian; /* what to install */
    const char *soname[2];        /* of which one is there in a process that uses it */
} package;

static const package PACKAGES[] = {
    {"openmpi", "libopenmpi-dev", {"libmpi.so.40", NULL}},
    {"mpich", "libmpich-dev", {"libmpich.so.12", "libmpi.so.12"}},
};

static const package *package_find(const char *library)
{
    for (size_t i = 0; i < sizeof PACKAGES / sizeof *PACKAGES; i++)
        if (strcmp(PACKAGES[i].library, library) == 0) return &PACKAGES[i];
    return NULL;
}

const char *meg_comm_mpi(int i)
{
    return i < (int)(sizeof PACKAGES / sizeof *PACKAGES) ? PACKAGES[i].library : NULL;
}

static const launcher *launcher_find(void)
{
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++)
        if (getenv(LAUNCHERS[i].mark)) return &LAUNCHERS[i];
    return NULL;
}

/* ---- loading ---- */

/* The folder of a path, in place. */
static bool folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

/* Where this code is: in libmegalith.so, or in the program that has the archive in it. */
static bool find_library_folder(char out[PATH_MAX])
{
    Dl_info info;
    if (!dladdr((const void *)LAUNCHERS, &info) || !info.dli_fname) return false;
    return realpath(info.dli_fname, out) && folder(out);
}

static bool find_program_folder(char out[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (length <= 0) return false;
    out[length] = '\0';
    return folder(out);
}

/* Tries the places that a build tree, an installed tree and a moved one have below a folder. */
static bool find_below(const char *base, const char *library, char path[2 * PATH_MAX])
{
    static const char *const below[] = {"", "/..", "/megalith", MEG_PLUGIN_FROM_BIN};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        snprintf(path, 2 * PATH_MAX, "%s%s/libmegalith_mpi_%s.so", base, below[i], library);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

/* Where the plug-in is, or ought to be. Is it there? */
static bool find_plugin(const char *library, char path[2 * PATH_MAX])
{
    char base[PATH_MAX];
    if (find_library_folder(base) && find_below(base, library, path)) return true;
    if (find_program_folder(base) && find_below(base, library, path)) return true;
    snprintf(path, 2 * PATH_MAX, "%s/libmegalith_mpi_%s.so", MEG_PLUGIN_DIR, library);
    return access(path, R_OK) == 0;
}

/* Global: parts of Open MPI are plug-ins themselves and look for it. */
static void *load(const char *library)
{
    char path[2 * PATH_MAX];
    find_plugin(library, path);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static meg_status load_plugin(meg_error *e, const package *p, const meg_comm_plugin **out)
{
    void *handle = load(p->library);
    const char *why = handle ? "" : dlerror();
    MEG_CHECK(e, handle, MEG_EUNSUPPORTED,
              "this job needs %s, but libmegalith_mpi_%s.so cannot be loaded (%s): build Megalith "
              "where %s is installed (Debian: %s)",
              p->library, p->library, why ? why : "no reason given", p->library, p->debian);
    const meg_comm_plugin *plugin = dlsym(handle, MEG_COMM_PLUGIN);
    MEG_CHECK(
        e, plugin && strcmp(plugin->version, MEG_VERSION) == 0 && plugin->layout == MEG_COMM_LAYOUT,
        MEG_EUNSUPPORTED,
        "libmegalith_mpi_%s.so is of another build than this library: build both anew", p->library);
    *out = plugin;
    return MEG_OK;
}

static meg_status open_plugin(meg_error *e, const package *p, meg_comm **out)
{
    const meg_comm_plugin *plugin = NULL;
    MEG_TRY(e, load_plugin(e, p, &plugin));
    return plugin->open(e, out);
}

/* The MPI that this process has loaded; NULL: none that is known. */
static const package *package_loaded(void)
{
    for (size_t i = 0; i < sizeof PACKAGES / sizeof *PACKAGES; i++)
        for (int k = 0; k < 2 && PACKAGES[i].soname[k]; k++) {
            void *handle = dlopen(PACKAGES[i].soname[k], RTLD_LAZY | RTLD_NOLOAD);
            if (!handle) continue;
            dlclose(handle);
            return &PACKAGES[i];
        }
    return NULL;
}

meg_status meg_comm_open_on(meg_error *e, int fortran, meg_comm **out)
{
    const package *p = package_loaded();
    const meg_comm_plugin *plugin = NULL;
    MEG_CHECK(e, p, MEG_EUNSUPPORTED,
              "a communicator was given, but this process has loaded neither Open MPI nor MPICH: "
              "begin MPI first, or use meg_open");
    MEG_TRY(e, load_plugin(e, p, &plugin));
    return plugin->open_on(e, fortran, out);
}

/* Without loading it: who asks for all would have several MPIs in one process. */
bool meg_comm_has(const char *library)
{
    char path[2 * PATH_MAX];
    return find_plugin(library, path);
}

/* ---- choosing ---- */

bool meg_comm_launched(int *rank)
{
    const char *wish = getenv("MEGALITH_MPI"), *text;
    const launcher *l = launcher_find();
    if (!l || (wish && strcmp(wish, "none") == 0)) return false;
    text = getenv(l->rank);
    *rank = text ? atoi(text) : 0;
    return true;
}

static meg_status open_launched(meg_error *e, const launcher *l, const package *p, meg_comm **out)
{
    const char *text = l && l->size ? getenv(l->size) : NULL;
    int size = text ? atoi(text) : 0;
    meg_comm *c = NULL;
    MEG_TRY(e, open_plugin(e, p, &c));
    if (size <= 1 || c->size > 1) {
        *out = c;
        return MEG_OK;
    }
    meg_comm_free(c);
    return meg_fail(e, MEG_EUNSUPPORTED,
                    "the launcher started %d ranks, but %s sees one: launcher and library must be "
                    "of the same MPI (the launcher is %s's; MEGALITH_MPI=%s)",
                    size, p->library, l->library, p->library);
}

meg_status meg_comm_open(meg_error *e, meg_comm **out)
{
    const char *wish = getenv("MEGALITH_MPI");
    const launcher *l = launcher_find();
    if (wish && strcmp(wish, "none") == 0) return meg_comm_alone(e, out);
    if (wish && *wish) {
        const package *p = package_find(wish);
        MEG_CHECK(e, p, MEG_EARG, "MEGALITH_MPI=%s: known are openmpi mpich none", wish);
        return open_launched(e, l, p, out);
    }
    if (!l) return meg_comm_alone(e, out);
    const char *size = l->size ? getenv(l->size) : NULL;
    if (size && atoi(size) == 1) return meg_comm_alone(e, out); /* one rank needs no MPI */
    return open_launched(e, l, package_find(l->library), out);
}
