/* Periods: see periods.h. */
#include "plan/program/periods.h"

static bool alike(const meg_entry *e, int a, int b, int later)
{
    const meg_line *x = &e->line[a], *y = &e->line[b];
    return x->station == y->station && x->block == y->block && x->frame == y->frame && !x->last &&
           !y->last && y->micro == x->micro + later;
}

/* The lines whose receives they post when they end. */
static bool followed_alike(const meg_entry *e, int a, int b, int later)
{
    int x = e->line[a].next, y = e->line[b].next;
    if (x < 0 || y < 0) return x < 0 && y < 0;
    const meg_line *next = &e->line[x], *other = &e->line[y];
    return next->station == other->station && next->block == other->block &&
           next->frame == other->frame && other->micro == next->micro + later;
}

/* Are the lines from `line` on like those a period before? */
static bool comes_again(const meg_entry *e, int line, int period, int later)
{
    for (int i = line; i < line + period; i++)
        if (i >= e->lines || !alike(e, i - period, i, later) ||
            !followed_alike(e, i - period, i, later))
            return false;
    return true;
}

int meg_period_repeats(const meg_entry *e, int line, int period, int *later)
{
    int count = 0;
    if (line < period || line >= e->lines) return 0;
    *later = e->line[line].micro - e->line[line - period].micro;
    while (comes_again(e, line + count * period, period, *later))
        count++;
    return count;
}
