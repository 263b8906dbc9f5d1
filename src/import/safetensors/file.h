/* Inside an open safetensors file: one file, or the shards of an index as one. */
#ifndef MEG_IMPORT_SAFETENSORS_FILE_H
#define MEG_IMPORT_SAFETENSORS_FILE_H

#include "base/pool.h"
#include "import/safetensors/safetensors.h"

typedef struct meg_saved_type {
    const char *name;
    int64_t bytes;
    int ours;                                        /* meg_dtype, or -1 */
    double (*number)(const char *at, int64_t bytes); /* NULL: not read as a number */
    bool whole;                                      /* numbers, or truths */
} meg_saved_type;

typedef struct meg_saved_entry {
    char *name, *dtype;
    const meg_saved_type *type; /* the last row for a type that we have never heard of */
    int rank;
    int64_t dims[MEG_SAVED_RANK]; /* the first ones */
    int64_t size;                 /* elements */
    int64_t begin, end;           /* bytes of the file's data */
    const char *data;
} meg_saved_entry;

struct meg_safetensors {
    char *path;
    meg_pool *pool;
    char *map; /* of the file, or of the index */
    size_t bytes;
    const char *data;
    int64_t data_bytes;
    meg_saved_entry *entries; /* sorted by name */
    size_t count, entries_room;
    meg_saved_note *notes;
    size_t note_count, notes_room;
    bool has_notes;
    meg_safetensors **shards; /* of an index: their maps hold the data */
    size_t shard_count, shards_room;
};

int meg_saved_by_name(const void *a, const void *b); /* order of entries */

/* An empty one; closed by meg_safetensors_close. */
meg_safetensors *meg_saved_new(const char *path);
meg_status meg_saved_map(meg_safetensors *f, meg_error *e); /* the file of f->path */

/* Fills it in: of the file of f->path (header.c), or of the index there and its shards (index.c). */
meg_status meg_saved_read(meg_safetensors *f, meg_error *e);
meg_status meg_saved_read_index(meg_safetensors *f, meg_error *e);

#endif
