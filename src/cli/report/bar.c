/* Bars: see bar.h. */
#include "cli/report/bar.h"
#include "cli/report/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static const double PAUSE = 0.1; /* seconds between drawings, and before the first */

void meg_bar_begin(meg_bar *b, const char *what, bool speaks)
{
    double now = meg_clock();
    *b = (meg_bar){what, speaks && isatty(STDERR_FILENO), false, now, now};
}

void meg_bar_show(void *bar, int64_t done, int64_t total)
{
    meg_bar *b = bar;
    meg_duration left;
    if (!b->live) return;
    double now = meg_clock();
    if (now - b->last < PAUSE) return;
    fprintf(stderr, "\r\033[K%s  %" PRId64 "/%" PRId64, b->what, done, total);
    if (done > 0) {
        meg_duration_text((now - b->begin) / (double)done * (double)(total - done), left);
        fprintf(stderr, "  %s left", left);
    }
    b->drawn = true;
    b->last = now;
}

void meg_bar_clear(meg_bar *b)
{
    if (b->drawn) fputs("\r\033[K", stderr);
    b->drawn = false;
}
