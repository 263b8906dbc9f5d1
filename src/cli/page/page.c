/* The page: see page.h. What it looks like is page.html, which the build makes a text of C; the data stand where
 * that has its mark. A < within them could end the script that they are in: it is written by its number.
 */
#include "cli/page/page.h"
#include "base/files/outfile.h"

#include <stdlib.h>
#include <string.h>

extern const char meg_page_html[]; /* page.html */

static const char MARK[] = "@DATA@";

static void escape(const char *text, FILE *out)
{
    for (const char *at; (at = strchr(text, '<')); text = at + 1) {
        fwrite(text, 1, (size_t)(at - text), out);
        fputs("\\u003c", out);
    }
    fputs(text, out);
}

meg_status meg_page_write(const meg_page *p, meg_error *e, const char *path)
{
    char *data = NULL, *all = NULL;
    size_t data_size = 0, size = 0;
    const char *mark = strstr(meg_page_html, MARK);
    FILE *f = open_memstream(&data, &data_size), *whole = NULL;
    if (!f) abort();
    meg_status status = meg_page_data(p, e, f);
    fclose(f);
    if (status == MEG_OK) whole = open_memstream(&all, &size);
    if (whole) {
        fwrite(meg_page_html, 1, (size_t)(mark - meg_page_html), whole);
        escape(data, whole);
        fputs(mark + strlen(MARK), whole);
        fclose(whole);
        meg_outfile out;
        status = meg_outfile_open(&out, e, path);
        if (status == MEG_OK) status = meg_outfile_write(&out, e, all, (int64_t)size);
        if (status == MEG_OK) status = meg_outfile_commit(&out, e);
        meg_outfile_close(&out);
    }
    free(data);
    free(all);
    return status;
}
