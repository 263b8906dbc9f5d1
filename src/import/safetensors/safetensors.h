/* safetensors: named tensors in one file, as Hugging Face defines it (github.com/huggingface/
 * safetensors): the length of the header in 8 bytes, the header in JSON, the data.
 *
 *     | n: u64 | {"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...} | data |
 *
 * Everything is little-endian and row-major; offsets count from the start of the data and fill it
 * without gap or overlap.
 *
 * Large models are sharded: several such files in one folder, and an index that says which tensor
 * is where.
 *
 *     model-00001-of-00002.safetensors  model-00002-of-00002.safetensors
 *     model.safetensors.index.json      {"metadata": {"total_size": 48},
 *                                        "weight_map": {"a": "model-00001-of-00002.safetensors"}}
 */
#ifndef MEG_IMPORT_SAFETENSORS_SAFETENSORS_H
#define MEG_IMPORT_SAFETENSORS_SAFETENSORS_H

#include "base/status.h"
#include "graph/box.h"

enum {
    MEG_SAVED_RANK = 8
};

#define MEG_SAVED_INDEX ".index.json" /* what the name of an index ends with */

typedef struct meg_saved { /* one tensor */
    const char *name;
    meg_dtype dtype;
    int rank; /* 0: one number */
    int64_t dims[MEG_SAVED_RANK];
    const void *data; /* of a file that was read: perhaps not aligned, so copy it */
} meg_saved;

typedef struct meg_saved_numbers { /* one tensor of a file, of any type that has numbers */
    int rank;
    int64_t dims[MEG_SAVED_RANK];
    bool whole; /* whole numbers, or truths: a mask, no weight */
    const char *data;
    int64_t bytes; /* of each number */
    double (*number)(const char *at, int64_t bytes);
} meg_saved_numbers;

static inline double meg_saved_number(const meg_saved_numbers *t, int64_t i)
{
    return t->number(t->data + i * t->bytes, t->bytes);
}

typedef struct meg_saved_note {
    const char *key, *value;
} meg_saved_note;

typedef struct meg_saved_file { /* what is to be written */
    int count, notes;
    const meg_saved *tensor;
    const meg_saved_note *note; /* becomes the file's __metadata__ */
} meg_saved_file;

/* Writes beside `path`, syncs, renames: after an error `path` is as it was. Ignore SIGXFSZ to get a
 * message instead of a signal when the limit of the file size is reached. */
meg_status meg_safetensors_write(meg_error *e, const char *path, const meg_saved_file *content);

/* Numbers that are not in memory, or not in one piece: hands the bytes of a tensor to `put`, in
 * ascending order, and returns its status, or one of its own. */
typedef meg_status meg_saved_put(void *to, const void *piece, int64_t bytes);
typedef struct meg_saved_source {
    meg_status (*get)(void *context, const meg_saved *t, meg_saved_put *put, void *to);
    void *context;
} meg_saved_source;

/* The same with numbers of a source (NULL: of the tensors' data), one tensor after the other; where
 * they have more than `limit` bytes in all (0: no limit), as shards of at most that (one tensor at
 * least), named after `path`, with an index. All shards are written before the first is renamed,
 * the index is renamed last; a file `path` of earlier gives way to them. */
meg_status meg_safetensors_stream(meg_error *e, const char *path, const meg_saved_file *content,
                                  const meg_saved_source *source, int64_t limit);

typedef struct meg_safetensors meg_safetensors; /* an open file; everything in it is checked */

/* A file; an index; a folder with model.safetensors or its index in it. Where there is no file, but
 * an index of its name beside it, that. */
meg_status meg_safetensors_open(meg_error *e, const char *path, meg_safetensors **out);
void meg_safetensors_close(meg_safetensors *f);

int meg_safetensors_count(const meg_safetensors *f);
const char *meg_safetensors_name(const meg_safetensors *f, int i);           /* sorted by strcmp */
int meg_safetensors_find(const meg_safetensors *f, const char *name);        /* -1: not there */
const char *meg_safetensors_note(const meg_safetensors *f, const char *key); /* NULL: not there */

/* Tensor i; types other than F32 F64 I32 U8, and ranks above MEG_SAVED_RANK, are refused. What it
 * points to lives until the file is closed. */
meg_status meg_safetensors_at(const meg_safetensors *f, meg_error *e, int i, meg_saved *out);

/* The same to be read number by number, of any type but F8. */
meg_status meg_safetensors_numbers(const meg_safetensors *f, meg_error *e, int i,
                                   meg_saved_numbers *out);

#endif
