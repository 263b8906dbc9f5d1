/* Hosts of a machinefile: how many there are, and whether they answer. A launcher that waits for a
 * dead host says little, late; so each is asked first, all at once, in the way in which the launcher
 * will reach it.
 */
#define _GNU_SOURCE
#include "cli/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NAME = 256,
    NO_SSH = 127
};

typedef struct host {
    char name[NAME];
    pid_t asked; /* 0: is this one */
} host;

typedef struct list {
    host *at;
    size_t count, room;
} list;

/* "node1", "node1 slots=4", "node1:4", each host once; # begins a comment. */
static void take_line(list *l, char *text)
{
    text[strcspn(text, "#\r\n")] = '\0';
    char *name = text + strspn(text, " \t");
    name[strcspn(name, " \t:")] = '\0';
    if (!*name || strlen(name) >= NAME) return;
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->at[i].name, name) == 0) return;
    l->at = meg_grow(l->at, &l->room, l->count + 1, sizeof *l->at);
    host *h = &l->at[l->count++];
    *h = (host){.asked = 0};
    snprintf(h->name, sizeof h->name, "%s", name);
}

static meg_status read_hosts(meg_error *e, const char *path, list *out)
{
    char text[1024];
    FILE *f = fopen(path, "r");
    MEG_CHECK(e, f, MEG_EIO, "cannot open the machinefile %s: %s", path, strerror(errno));
    while (fgets(text, sizeof text, f))
        take_line(out, text);
    fclose(f);
    MEG_CHECK(
        e, out->count > 0, MEG_EDATA,
        "the machinefile %s names no host: write one a line, as `node1 slots=4` (Open MPI) or "
        "`node1:4` (MPICH)",
        path);
    return MEG_OK;
}

meg_status meg_hosts_count(meg_error *e, const char *path, int *count)
{
    list l = {0};
    meg_status status = read_hosts(e, path, &l);
    *count = (int)l.count;
    free(l.at);
    return status;
}

/* ---- asking ---- */

static bool is_here(const char *name)
{
    char mine[NAME] = "";
    gethostname(mine, sizeof mine - 1);
    return strcmp(name, mine) == 0 || strcmp(name, "localhost") == 0 ||
           strncmp(name, "127.", 4) == 0;
}

/* Whoever has set another way to reach hosts knows what he does. */
static bool own_way(void)
{
    static const char *const marks[] = {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent",
                                        "OMPI_MCA_plm", "HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i])) return true;
    return false;
}

static pid_t ask(const char *name)
{
    pid_t child = fork();
    if (child != 0) return child;
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i <= STDERR_FILENO; i++)
        dup2(null, i);
    execlp("ssh", "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", name, "true",
           (char *)NULL);
    _exit(NO_SSH);
}

/* 0: it answered. */
static int answer(pid_t asked)
{
    int status = 0;
    if (asked <= 0 || waitpid(asked, &status, 0) != asked) return asked == 0 ? 0 : NO_SSH;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

meg_status meg_hosts_check(meg_error *e, const char *path)
{
    list l = {0};
    meg_status status = read_hosts(e, path, &l);
    bool skip = own_way();
    for (size_t i = 0; i < l.count && status == MEG_OK && !skip; i++)
        if (!is_here(l.at[i].name)) l.at[i].asked = ask(l.at[i].name);
    for (size_t i = 0; i < l.count; i++) {
        int code = answer(l.at[i].asked);
        if (status != MEG_OK || code == 0) continue;
        status = code == NO_SSH
                     ? meg_fail(e, MEG_EUNSUPPORTED,
                                "%s names other hosts, but there is no ssh to reach them (Debian: "
                                "openssh-client)",
                                path)
                     : meg_fail(e, MEG_EIO,
                                "host %s of %s does not answer: try `ssh -o BatchMode=yes %s true`",
                                l.at[i].name, path, l.at[i].name);
    }
    free(l.at);
    return status;
}
