/* Periods: see periods.h. */
#include "plan/events/periods.h"

static bool shifted(const meg_line *x, const meg_line *y, meg_shift by)
{
    return x->station == y->station && x->block == y->block && y->frame == x->frame + by.frame &&
           y->micro == x->micro + by.micro;
}

static bool alike(const meg_entry *e, int a, int b, meg_shift by)
{
    const meg_line *x = &e->line[a], *y = &e->line[b];
    return !x->last && !y->last && shifted(x, y, by);
}

/* The lines whose receives they post when they end. */
static bool followed_alike(const meg_entry *e, int a, int b, meg_shift by)
{
    int x = e->line[a].next, y = e->line[b].next;
    if (x < 0 || y < 0) return x < 0 && y < 0;
    return shifted(&e->line[x], &e->line[y], by);
}

/* Are the lines from `line` on like those a period before? */
static bool comes_again(const meg_entry *e, int line, int period, meg_shift by)
{
    for (int i = line; i < line + period; i++)
        if (i >= e->lines || !alike(e, i - period, i, by) || !followed_alike(e, i - period, i, by))
            return false;
    return true;
}

int meg_period_repeats(const meg_entry *e, int line, int period, meg_shift *by)
{
    int count = 0;
    if (line < period || line >= e->lines) return 0;
    const meg_line *x = &e->line[line - period], *y = &e->line[line];
    *by = (meg_shift){y->micro - x->micro, y->frame - x->frame};
    while (comes_again(e, line + count * period, period, *by))
        count++;
    return count;
}
