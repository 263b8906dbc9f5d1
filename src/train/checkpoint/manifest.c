/* Manifests: see manifest.h. The checksum is the CRC-32 of zip, so that `crc32` and Python's zlib can
 * tell it, too; that of the last line is the manifest's own.
 */
#include "train/checkpoint/manifest.h"
#include "base/files/outfile.h"
#include "base/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    PIECE = 1 << 20, /* bytes read at a time */
    MOST = 16 << 20  /* bytes of a manifest */
};

#define AT(field) offsetof(meg_manifest, field)
#define COUNT     MEG_PARAM_INT
#define TEXT      MEG_PARAM_TEXT

static const char HEAD[] = "megalith checkpoint 1\n";

static const meg_param FIELDS[] = {
    {"model", TEXT, AT(model), NULL, "its name", NULL, 0, 0},
    {"fingerprint", TEXT, AT(fingerprint), NULL, "of its graph", NULL, 0, 0},
    {"step", COUNT, AT(step), NULL, "steps done", NULL, 0, 1e15},
    {"epoch", COUNT, AT(epoch), NULL, "whole epochs done", NULL, 0, 1e15},
    {"position", COUNT, AT(position), NULL, "steps done of the next epoch", NULL, 0, 1e15},
    {"per_epoch", COUNT, AT(per_epoch), NULL, "steps of an epoch", NULL, 0, 1e15},
    {"samples", COUNT, AT(samples), NULL, "of the data set", NULL, 0, 1e15},
    {"batch", COUNT, AT(batch), NULL, "samples of a step", NULL, 0, 1e15},
    {"norm", COUNT, AT(norm), NULL, "samples of a normalisation group", NULL, 0, 1e15},
    {"seed", COUNT, AT(seed), NULL, "of all random numbers", NULL, 0, 1e15},
    {"optimizer", TEXT, AT(optimizer), NULL, "its name", NULL, 0, 0},
    {"words", TEXT, AT(words), NULL, "its settings", NULL, 0, 0},
    {NULL, 0, 0, NULL, NULL, NULL, 0, 0}};

/* ---- files ---- */

typedef struct stamp {
    int64_t bytes;
    uint32_t crc;
} stamp;

static meg_status stamp_file(meg_error *e, const char *path, stamp *out)
{
    *out = (stamp){0, (uint32_t)crc32(0, NULL, 0)};
    meg_status status = MEG_OK;
    ssize_t got = 0;
    char *piece = malloc(PIECE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!piece) status = meg_fail(e, MEG_ENOMEM, "%s: no memory", path);
    else if (fd < 0) status = meg_fail(e, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
    while (status == MEG_OK && (got = read(fd, piece, PIECE)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = meg_fail(e, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
            break;
        }
        out->crc = (uint32_t)crc32(out->crc, (const Bytef *)piece, (uInt)got);
        out->bytes += got;
    }
    if (fd >= 0) close(fd);
    free(piece);
    return status;
}

static const char *join(meg_pool *pool, const char *folder, const char *name)
{
    return meg_pool_text(pool, "%s/%s", folder, name);
}

/* ---- writing ---- */

static meg_status list_files(meg_error *e, const char *folder, meg_pool *pool, char **text)
{
    DIR *d = opendir(folder);
    MEG_CHECK(e, d, MEG_EIO, "cannot read %s: %s", folder, strerror(errno));
    meg_status status = MEG_OK;
    for (struct dirent *at = readdir(d); at && status == MEG_OK; at = readdir(d)) {
        stamp s;
        if (at->d_name[0] == '.') continue;
        status = stamp_file(e, join(pool, folder, at->d_name), &s);
        if (status == MEG_OK)
            *text = meg_pool_text(pool, "%sfile %" PRId64 " %08" PRIx32 " %s\n", *text, s.bytes,
                                  s.crc, at->d_name);
    }
    closedir(d);
    return status;
}

static meg_status write_text(meg_error *e, const char *path, const char *text)
{
    meg_outfile file = {.fd = -1};
    meg_status status = meg_outfile_open(&file, e, path);
    if (status == MEG_OK) status = meg_outfile_write(&file, e, text, (int64_t)strlen(text));
    if (status == MEG_OK) status = meg_outfile_commit(&file, e);
    meg_outfile_close(&file);
    return status;
}

/* Quotes would end a text too early; names are for people here. */
static void tame(char *text)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\'' || (unsigned char)*text < ' ') *text = '_';
}

meg_status meg_manifest_write(const meg_manifest *given, meg_error *e, const char *folder)
{
    char fields[4 * MEG_TEXT + 512];
    meg_manifest m = *given;
    meg_pool *pool = meg_pool_new();
    tame(m.model);
    tame(m.words);
    meg_options_print(FIELDS, &m, fields, sizeof fields);
    char *text = meg_pool_text(pool, "%s%s\n", HEAD, fields);
    meg_status status = list_files(e, folder, pool, &text);
    if (status == MEG_OK) {
        uint32_t crc = (uint32_t)crc32(0, (const Bytef *)text, (uInt)strlen(text));
        text = meg_pool_text(pool, "%send %08" PRIx32 "\n", text, crc);
        status = write_text(e, join(pool, folder, MEG_MANIFEST), text);
    }
    meg_pool_free(pool);
    return status;
}

/* ---- reading ---- */

static meg_status read_text(meg_error *e, const char *path, meg_pool *pool, char **out)
{
    FILE *f = fopen(path, "rb");
    MEG_CHECK(e, f, errno == ENOENT ? MEG_EDATA : MEG_EIO, "cannot read %s: %s", path,
              strerror(errno));
    size_t got = 0, room = 0;
    char *text = NULL;
    do {
        text = meg_grow(text, &room, got + PIECE, 1);
        got += fread(text + got, 1, PIECE - 1, f);
    } while (!feof(f) && !ferror(f) && got < MOST);
    bool whole = feof(f) && !ferror(f) && memchr(text, '\0', got) == NULL;
    fclose(f);
    text[got] = '\0';
    *out = meg_pool_text(pool, "%s", text);
    free(text);
    MEG_CHECK(e, whole, MEG_EDATA, "%s is damaged: it is not the text of a manifest", path);
    return MEG_OK;
}

/* Cuts the last line off, which is the checksum of what remains. */
static meg_status check_text(meg_error *e, const char *path, char *text)
{
    char *end = strstr(text, "\nend ");
    MEG_CHECK(e, strncmp(text, HEAD, strcspn(HEAD, "1")) == 0, MEG_EDATA,
              "%s is damaged, or no manifest", path);
    MEG_CHECK(e, strncmp(text, HEAD, sizeof HEAD - 1) == 0, MEG_EDATA,
              "%s is of version %.8s, but this Megalith reads 1", path, text + strcspn(HEAD, "1"));
    MEG_CHECK(e, end, MEG_EDATA, "%s is cut off", path);
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)text, (uInt)(end + 1 - text));
    char line[32];
    snprintf(line, sizeof line, "end %08" PRIx32 "\n", crc);
    MEG_CHECK(e, strcmp(end + 1, line) == 0, MEG_EDATA, "%s is damaged: its checksum is %08" PRIx32,
              path, crc);
    end[1] = '\0';
    return MEG_OK;
}

/* "file BYTES CRC NAME" */
static meg_status check_file(meg_error *e, const char *folder, meg_pool *pool, const char *line)
{
    stamp said, found;
    int at = 0;
    bool read = sscanf(line, "file %" SCNd64 " %" SCNx32 " %n", &said.bytes, &said.crc, &at) == 2;
    MEG_CHECK(e, read && at > 0 && line[at] && !strchr(line + at, '/'), MEG_EDATA,
              "%s/" MEG_MANIFEST ": cannot read '%.80s'", folder, line);
    const char *path = join(pool, folder, line + at);
    MEG_CHECK(e, access(path, F_OK) == 0, MEG_EDATA, "%s is missing", path);
    MEG_TRY(e, stamp_file(e, path, &found));
    MEG_CHECK(e, said.bytes == found.bytes, MEG_EDATA,
              "%s has %" PRId64 " bytes, but its manifest says %" PRId64, path, found.bytes,
              said.bytes);
    MEG_CHECK(e, said.crc == found.crc, MEG_EDATA,
              "%s is damaged: its checksum is %08" PRIx32 ", but its manifest says %08" PRIx32,
              path, found.crc, said.crc);
    return MEG_OK;
}

static meg_status read_all(meg_manifest *m, meg_error *e, const char *folder, meg_pool *pool)
{
    char *text = NULL, *rest = NULL;
    const char *path = join(pool, folder, MEG_MANIFEST);
    MEG_TRY(e, read_text(e, path, pool, &text));
    MEG_TRY(e, check_text(e, path, text));
    char *line = strtok_r(text + sizeof HEAD - 1, "\n", &rest);
    meg_status status = meg_options_parse(e, FIELDS, path, line, m);
    MEG_CHECK(e, status == MEG_OK, MEG_EDATA, "%s", meg_pool_text(pool, "%s", e->message));
    while ((line = strtok_r(NULL, "\n", &rest)))
        MEG_TRY(e, check_file(e, folder, pool, line));
    return MEG_OK;
}

meg_status meg_manifest_read(meg_manifest *m, meg_error *e, const char *folder)
{
    meg_pool *pool = meg_pool_new();
    meg_status status = read_all(m, e, folder, pool);
    meg_pool_free(pool);
    return status;
}
