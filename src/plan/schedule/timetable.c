/* Timetables: frames, picture. See timetable.h. */
#include "plan/schedule/timetable.h"

#include <math.h>
#include <string.h>

/* ---- frames ---- */

static bool ends_frame(const meg_timetable *t, const meg_task *k)
{
    return meg_task_step(k->kind) == (t->split ? 2 : 1);
}

/* A rank's list alone decides: the frame is taken where its forward stands in it, and is free again
 * for what follows the last of its backward. */
void meg_timetable_assign_frames(meg_pool *pool, meg_timetable *t)
{
    size_t stages = (size_t)(t->directions * t->stages), micro = (size_t)t->micro;
    t->frames = meg_pool_alloc(pool, stages * sizeof *t->frames);
    t->frame = meg_pool_alloc(pool, (size_t)t->stages * micro * sizeof *t->frame);
    t->peak = meg_pool_alloc(pool, (size_t)t->ranks * sizeof *t->peak);
    meg_pool *work = meg_pool_new();
    bool *taken = meg_pool_alloc(work, stages * micro * sizeof *taken); /* (stages, frame) */
    for (int r = 0; r < t->ranks; r++) {
        int live = 0;
        for (int i = t->first[r]; i < t->first[r + 1]; i++) {
            meg_task *k = &t->task[i];
            int at = k->direction * t->stages + k->stage;
            int *frame = &t->frame[(size_t)k->stage * micro + (size_t)k->micro];
            bool *mine = taken + (size_t)at * micro;
            if (k->kind == MEG_TASK_F) {
                for (*frame = 0; mine[*frame];)
                    ++*frame;
                if (*frame >= t->frames[at]) t->frames[at] = *frame + 1;
                if (++live > t->peak[r]) t->peak[r] = live;
            }
            k->frame = *frame;
            mine[*frame] = !ends_frame(t, k);
            live -= ends_frame(t, k);
        }
    }
    meg_pool_free(work);
}

/* ---- picture ---- */

static int digits(int n)
{
    return snprintf(NULL, 0, "%d", n);
}

/* "F12^": what the task is called in the picture. */
static int label(const meg_timetable *t, const meg_task *k, char *text, size_t size)
{
    static const char letter[] = {'F', 'B', 'B', 'W'};
    char mark[2] = "";
    int chunk = k->stage / t->ranks;
    if (k->direction) mark[0] = '^';
    if (t->stages > t->ranks) mark[0] = (char)(chunk < 26 ? 'a' + chunk : '?');
    return snprintf(text, size, "%c%d%s", letter[k->kind], k->micro, mark);
}

static void print_rank(const meg_timetable *t, int r, int width, FILE *out)
{
    int column = 0, behind = 0; /* ticks printed; characters of the last label */
    char text[32];
    fprintf(out, "  %*d |", digits(t->ranks - 1), r);
    for (int i = t->first[r]; i < t->first[r + 1]; i++) {
        const meg_task *k = &t->task[i];
        int from = (int)lround(k->start / t->tick), to = (int)lround(k->end / t->tick);
        int used = label(t, k, text, sizeof text);
        for (int at = from; at < to; at++) {
            int gap = (at - column) * width + (column ? width - behind : 0);
            fprintf(out, "%*s%s", gap, "", text);
            behind = used;
            column = at + 1;
        }
    }
    fputc('\n', out);
}

void meg_timetable_print(const meg_timetable *t, FILE *out)
{
    int marks = t->directions > 1 || t->stages > t->ranks;
    fprintf(out, "%s: %d stages on %d ranks, %d micro-batches: time %g, frames", t->schedule,
            t->stages, t->ranks, t->micro, t->makespan);
    for (int d = 0; d < t->directions; d++) {
        for (int s = 0; s < t->stages; s++)
            fprintf(out, " %d", meg_timetable_frames(t, d, s));
        if (d + 1 < t->directions) fputs(" and", out);
    }
    fputc('\n', out);
    for (int r = 0; r < t->ranks; r++)
        print_rank(t, r, 2 + digits(t->micro - 1) + marks, out);
}
