/* The book of prices of a job: see book.h. */
#include "exec/probe/book.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a probe that nobody asked for: some 5 seconds, also where others have the cores. */
static const meg_probe_time UNASKED = {.seconds = 4, .patience = 1.25};

static const char *word_of(const meg_book_ask *a)
{
    const char *around = getenv("MEGALITH_PRICES");
    return *a->word ? a->word : around ? around : "";
}

/* Of ranks that are not there, if somebody has measured with as many. */
static bool path_imagined(const meg_book_ask *a, char out[MEG_PRICES_PATH])
{
    meg_prices_head head = meg_machine_head(a->device, a->comm);
    if (a->imagined <= head.ranks) return false;
    head.ranks = a->imagined;
    return meg_prices_path(&head, out) && access(out, R_OK) == 0;
}

/* Kinds of plain C are not made for speed. */
bool meg_book_path(const meg_book_ask *a, char out[MEG_PRICES_PATH])
{
    const char *word = word_of(a);
    meg_prices_head head = meg_machine_head(a->device, a->comm);
    if (strcmp(word, "builtin") == 0) return false;
    if (*word) return snprintf(out, MEG_PRICES_PATH, "%s", word) < MEG_PRICES_PATH;
    if (meg_device_kind_of(a->device) != &meg_device_cpu) return false;
    return path_imagined(a, out) || meg_prices_path(&head, out);
}

static bool is_first(const meg_book_ask *a)
{
    return meg_comm_rank(a->comm) == 0;
}

/* Bytes of rank 0, to all; `text` is freed and made anew. */
static meg_status share_text(const meg_book_ask *a, meg_error *e, char **text, int64_t *bytes)
{
    MEG_TRY(e, meg_comm_share(a->comm, e, 0, bytes, sizeof *bytes));
    if (!is_first(a)) {
        free(*text);
        *text = malloc((size_t)*bytes + 1);
    }
    MEG_CHECK(e, *text, MEG_ENOMEM, "no memory for a book of prices");
    return *bytes ? meg_comm_share(a->comm, e, 0, *text, *bytes) : MEG_OK;
}

/* So that all plan alike. The first one, too, reads its text: figures are rounded there. */
static meg_status share(const meg_book_ask *a, meg_error *e, meg_prices **book)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out && is_first(a) && *book) meg_prices_write(*book, out);
    if (out) fclose(out);
    int64_t bytes = (int64_t)size;
    meg_status status = share_text(a, e, &text, &bytes);
    meg_prices_free(*book);
    *book = NULL;
    if (status == MEG_OK && bytes)
        status = meg_prices_read(e, "prices of rank 0", text, (size_t)bytes, book);
    free(text);
    return status;
}

static meg_status load(const meg_book_ask *a, meg_error *e, const char *path, meg_prices **book)
{
    MEG_TRY(e, meg_prices_load(e, path, book));
    MEG_CHECK(e, *book || !*word_of(a), MEG_EIO,
              "there is no %s: `megalith probe --prices %s` makes it, prices=builtin does without",
              path, path);
    return MEG_OK;
}

/* What cannot be kept is used all the same. */
static meg_status probe(const meg_book_ask *a, meg_error *e, const char *path, meg_prices **book)
{
    meg_error trouble = {0};
    if (is_first(a) && a->log->level > MEG_QUIET)
        fprintf(stderr, "megalith: probing this machine, %.0f s, once (kept in %s)\n",
                UNASKED.seconds, path);
    meg_status status = meg_machine_probe(a->device, a->comm, e, &UNASKED, book);
    if (meg_comm_size(a->comm) > 1) {
        if (status == MEG_OK) meg_error_clear(e);
        status = meg_comm_agree(a->comm, e);
    }
    if (status !=
        MEG_OK) { /* for want of memory: then seconds are those of no machine in particular */
        meg_log(a->log, MEG_WARN, "the machine cannot be measured, seconds are guesses: %s",
                e->message);
        meg_error_clear(e);
        meg_prices_free(*book);
        *book = NULL;
        return MEG_OK;
    }
    if (is_first(a) && meg_prices_save(&trouble, path, *book) != MEG_OK)
        meg_log(a->log, MEG_WARN, "%s", trouble.message);
    return MEG_OK;
}

meg_status meg_book_open(const meg_book_ask *a, meg_error *e, meg_prices **out)
{
    char path[MEG_PRICES_PATH];
    meg_prices *book = NULL;
    bool many = meg_comm_size(a->comm) > 1, kept = meg_book_path(a, path), missing;
    meg_status status = kept && is_first(a) ? load(a, e, path, &book) : MEG_OK;
    if (many && status == MEG_OK) meg_error_clear(e);
    if (many) status = meg_comm_agree(a->comm, e);
    missing = kept && !book && a->probes;
    if (status == MEG_OK && many) status = meg_comm_share(a->comm, e, 0, &missing, sizeof missing);
    if (status == MEG_OK && missing) status = probe(a, e, path, &book);
    if (status == MEG_OK && many) status = share(a, e, &book);
    if (status == MEG_OK) *out = book;
    else meg_prices_free(book);
    return status;
}
