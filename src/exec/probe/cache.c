/* Books of prices in the user's cache folder: see machine.h. */
#include "base/files/outfile.h"
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "exec/probe/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int ranks_here(meg_comm *c)
{
    int count = 0;
    for (int r = 0; c && r < meg_comm_size(c); r++)
        count += meg_comm_node(c)[r] == meg_comm_node(c)[meg_comm_rank(c)];
    return count ? count : 1;
}

meg_prices_head meg_machine_head(meg_device *d, meg_comm *c)
{
    const meg_device_kind *kind = meg_device_kind_of(d);
    meg_prices_head h = {.threads = meg_device_threads(d), .ranks = ranks_here(c)};
    const meg_cpu *cpu = kind == &meg_device_cpu ? meg_device_state(d) : NULL;
    snprintf(h.isa, sizeof h.isa, "%s", cpu ? cpu->simd->name : kind->name);
    return h;
}

static bool folder_of(char out[MEG_PRICES_PATH])
{
    const char *own = getenv("MEGALITH_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int used = -1;
    if (own && *own) used = snprintf(out, MEG_PRICES_PATH, "%s", own);
    else if (cache && *cache == '/') used = snprintf(out, MEG_PRICES_PATH, "%s/megalith", cache);
    else if (home && *home) used = snprintf(out, MEG_PRICES_PATH, "%s/.cache/megalith", home);
    return used > 0 && used < MEG_PRICES_PATH;
}

bool meg_prices_path(const meg_prices_head *h, char out[MEG_PRICES_PATH])
{
    char host[256] = "";
    if (!folder_of(out)) return false;
    if (gethostname(host, sizeof host - 1) != 0 || !*host) strcpy(host, "here");
    for (char *at = host; *at; at++)
        if (*at == '/') *at = '_';
    size_t used = strlen(out), room = MEG_PRICES_PATH - used;
    int more = snprintf(out + used, room, "/prices-%s-%s-t%d-r%d.txt", host, h->isa, h->threads,
                        h->ranks);
    return more > 0 && (size_t)more < room;
}

meg_status meg_prices_load(meg_error *e, const char *path, meg_prices **out)
{
    FILE *f = fopen(path, "rb");
    *out = NULL;
    if (!f && (errno == ENOENT || errno == ENOTDIR)) return MEG_OK;
    MEG_CHECK(e, f, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
    char *text = NULL, piece[1 << 16];
    size_t size = 0, got;
    FILE *whole = open_memstream(&text, &size);
    while (whole && (got = fread(piece, 1, sizeof piece, f)) > 0 &&
           ftell(whole) <= MEG_PRICES_TEXT_MAX)
        fwrite(piece, 1, got, whole);
    bool bad = !whole || ferror(f) || fclose(whole) != 0;
    fclose(f);
    meg_status status = bad ? meg_fail(e, MEG_EIO, "cannot read %s", path)
                            : meg_prices_read(e, path, text, size, out);
    free(text);
    return status;
}

static void make_folders(const char *path)
{
    char at[MEG_PRICES_PATH];
    snprintf(at, sizeof at, "%s", path);
    for (char *slash = strchr(at + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(at, 0777); /* what cannot be made is told when the file is opened */
        *slash = '/';
    }
}

meg_status meg_prices_save(meg_error *e, const char *path, const meg_prices *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    MEG_CHECK(e, out, MEG_ENOMEM, "no memory for a book of prices");
    meg_prices_write(p, out);
    fclose(out);
    make_folders(path);
    meg_outfile f;
    meg_status status = meg_outfile_open(&f, e, path);
    if (status == MEG_OK) {
        status = meg_outfile_write(&f, e, text, (int64_t)size);
        if (status == MEG_OK) status = meg_outfile_commit(&f, e);
        meg_outfile_close(&f);
    }
    free(text);
    return status;
}
