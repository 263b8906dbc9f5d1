/* Writes NumPy files, and archives of them as numpy.savez and numpy.savez_compressed do. */
#ifndef TESTS_NPY_HELP_H
#define TESTS_NPY_HELP_H

#include "scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct npy_bytes {
    char *data; /* to be freed */
    size_t size;
} npy_bytes;

/* A .npy of version 1 or 2 with the header text as it stands. */
static inline npy_bytes npy_make(int version, const char *header, const void *data, size_t bytes)
{
    size_t length = strlen(header), at = version == 1 ? 10 : 12;
    npy_bytes out = {calloc(1, at + length + bytes + 1), at + length + bytes};
    if (!out.data) exit(1);
    memcpy(out.data, "\x93NUMPY", 6);
    out.data[6] = (char)version;
    for (size_t i = 8; i < at; i++)
        out.data[i] = (char)(length >> 8 * (i - 8));
    memcpy(out.data + at, header, length);
    memcpy(out.data + at + length, data, bytes);
    return out;
}

static inline const char *npy_write(scratch *s, const char *name, int version, const char *header,
                                    const void *data, size_t bytes)
{
    npy_bytes file = npy_make(version, header, data, bytes);
    const char *path = scratch_write(s, name, file.data, file.size);
    free(file.data);
    return path;
}

/* The header of an array: npy_header("<f4", "2, 3, 4"). Valid until the next call. */
static inline const char *npy_header(char text[128], const char *type, const char *shape)
{
    snprintf(text, 128, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", type, shape);
    return text;
}

/* ---- archives ---- */

typedef struct npz_writer {
    FILE *file;
    char directory[4096];
    size_t used;
    int count;
    bool deflated, large; /* large: sizes stand in extra fields, as of files beyond 4 GiB */
} npz_writer;

static inline void npz_number(char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (char)(value >> 8 * i);
}

static inline size_t npz_pack(const npy_bytes *x, char *out, size_t room)
{
    z_stream s = {0};
    if (deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) exit(1);
    s.next_in = (unsigned char *)x->data, s.avail_in = (unsigned)x->size;
    s.next_out = (unsigned char *)out, s.avail_out = (unsigned)room;
    if (deflate(&s, Z_FINISH) != Z_STREAM_END) exit(1);
    deflateEnd(&s);
    return s.total_out;
}

static inline void npz_add(npz_writer *w, const char *key, npy_bytes x)
{
    char name[64], head[46] = "PK\1\2", local[30] = "PK\3\4", extra[28] = {1, 0, 24, 0};
    size_t length = (size_t)snprintf(name, sizeof name, "%s.npy", key), room = x.size + 1024;
    size_t more = w->large ? sizeof extra : 0;
    char *packed = malloc(room);
    size_t bytes = w->deflated ? npz_pack(&x, packed, room) : x.size;
    uint64_t at = (uint64_t)ftell(w->file), open = 0xffffffff;
    npz_number(head + 10, w->deflated ? 8 : 0, 2);
    npz_number(head + 16, crc32(0, (const unsigned char *)x.data, (unsigned)x.size), 4);
    npz_number(head + 20, w->large ? open : bytes, 4);
    npz_number(head + 24, w->large ? open : x.size, 4);
    npz_number(head + 28, length, 2);
    npz_number(head + 30, more, 2);
    npz_number(head + 42, w->large ? open : at, 4);
    npz_number(extra + 4, x.size, 8);
    npz_number(extra + 12, bytes, 8);
    npz_number(extra + 20, at, 8);
    memcpy(local + 4, head + 6, 22); /* the two headers agree so far */
    npz_number(local + 26, length, 2);
    fwrite(local, 1, sizeof local, w->file);
    fwrite(name, 1, length, w->file);
    fwrite(w->deflated ? packed : x.data, 1, bytes, w->file);
    memcpy(w->directory + w->used, head, sizeof head);
    memcpy(w->directory + w->used + sizeof head, name, length);
    memcpy(w->directory + w->used + sizeof head + length, extra, more);
    w->used += sizeof head + length + more;
    w->count++;
    free(packed);
    free(x.data);
}

static inline void npz_end(npz_writer *w)
{
    char end[22] = "PK\5\6";
    npz_number(end + 8, (uint64_t)w->count, 2);
    npz_number(end + 10, (uint64_t)w->count, 2);
    npz_number(end + 12, w->used, 4);
    npz_number(end + 16, (uint64_t)ftell(w->file), 4);
    fwrite(w->directory, 1, w->used, w->file);
    fwrite(end, 1, sizeof end, w->file);
    fclose(w->file);
}

#endif
