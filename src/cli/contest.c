/* Contests of plans: see contest.h. */
#include "cli/contest.h"
#include "cli/report/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SURPRISES = 3 /* pairs in the wrong order that are named */
};

static bool ran(const meg_contender *p)
{
    return !p->trouble && p->steps.count > 0;
}

static double seconds_of(const meg_contender *p)
{
    return meg_measure_median(&p->steps);
}

static int by_prediction(const void *a, const void *b)
{
    const meg_contender *x = a, *y = b;
    double s = x->predicted > 0 ? x->predicted : INFINITY;
    double t = y->predicted > 0 ? y->predicted : INFINITY;
    if (s != t) return s < t ? -1 : 1;
    return x->chosen != y->chosen ? y->chosen - x->chosen : 0;
}

void meg_contest_sort(meg_contest *c)
{
    if (c->count) qsort(c->list, (size_t)c->count, sizeof *c->list, by_prediction);
}

/* ---- the verdict ---- */

/* The mean of how much slower `a` was than `b` in each round, and of what the mean is, with 95 % certainty, at most:
 * rounds are pairs, since drift hits both alike (Student's t, one-sided). */
static double slower_at_most(const meg_measure *a, const meg_measure *b)
{
    static const double t95[] = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895,
                                 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761,
                                 1.753, 1.746, 1.740, 1.734, 1.729, 1.725};
    size_t count = a->count < b->count ? a->count : b->count, most = sizeof t95 / sizeof *t95;
    meg_measure ratio = {0};
    for (size_t i = 0; i < count; i++)
        meg_measure_add(&ratio, log(a->at[i] / b->at[i]));
    double mean = meg_measure_mean(&ratio), deviation = meg_measure_deviation(&ratio);
    meg_measure_free(&ratio);
    if (count < 2) return NAN;
    double t = t95[(count - 1 < most ? count - 1 : most) - 1];
    return exp(mean + t * deviation / sqrt((double)count)) - 1;
}

meg_judgement meg_contest_judge(const meg_contest *c)
{
    meg_judgement v = {.best = -1, .chosen = -1, .slower = NAN, .slower_most = NAN};
    for (int i = 0; i < c->count; i++) {
        const meg_contender *p = &c->list[i];
        v.unlike += p->measured != 0 && p->measured != p->bytes;
        if (!ran(p)) continue;
        if (v.best < 0 || seconds_of(p) < seconds_of(&c->list[v.best])) v.best = i;
        if (p->chosen) v.chosen = i;
        for (int k = 0; k < i; k++) {
            if (!ran(&c->list[k])) continue;
            v.pairs++;
            v.right += seconds_of(&c->list[k]) <= seconds_of(p);
        }
    }
    if (v.chosen < 0) return v;
    const meg_contender *mine = &c->list[v.chosen], *best = &c->list[v.best];
    bool one = mine->program == best->program;
    v.slower = one ? 0 : seconds_of(mine) / seconds_of(best) - 1;
    v.slower_most = one ? 0 : slower_at_most(&mine->rounds, &best->rounds);
    return v;
}

/* ---- for people ---- */

static void print_row(const meg_contender *p)
{
    char seconds[32] = "-", measured[32] = "-", rounds[40] = "-", ratio[32] = "-";
    char bytes[32] = "-", touched[32] = "-", difference[32] = "-";
    if (p->predicted > 0) snprintf(seconds, sizeof seconds, "%.4f", p->predicted);
    if (p->bytes) snprintf(bytes, sizeof bytes, "%" PRId64, p->bytes);
    if (p->measured) {
        snprintf(touched, sizeof touched, "%" PRId64, p->measured);
        snprintf(difference, sizeof difference, "%" PRId64, p->measured - p->bytes);
    }
    if (ran(p)) {
        snprintf(measured, sizeof measured, "%.4f", seconds_of(p));
        snprintf(ratio, sizeof ratio, "%.2f", p->predicted > 0 ? seconds_of(p) / p->predicted : 0);
        snprintf(rounds, sizeof rounds, "%.4f..%.4f", meg_measure_least(&p->rounds),
                 meg_measure_most(&p->rounds));
    }
    printf("  %11s  %10s  %16s  %5s  %15s  %15s  %10s  %-4s  %s\n", seconds, measured, rounds,
           ratio, bytes, touched, difference, p->chosen ? "auto" : "", p->words);
    if (p->trouble) printf("  %11s  %s\n", "", p->trouble);
}

static void print_surprises(const meg_contest *c)
{
    int told = 0;
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < i && told < SURPRISES; k++) {
            const meg_contender *a = &c->list[k], *b = &c->list[i];
            if (!ran(a) || !ran(b) || seconds_of(a) <= seconds_of(b)) continue;
            told++;
            printf("  %s: predicted %.1f %% slower than %s, measured %.1f %% quicker\n", b->words,
                   100 * (b->predicted / a->predicted - 1), a->words,
                   100 * (1 - seconds_of(b) / seconds_of(a)));
        }
}

static void print_choice(const meg_contest *c, const meg_judgement *v)
{
    if (v->chosen < 0) return;
    const meg_contender *mine = &c->list[v->chosen], *best = &c->list[v->best];
    if (mine->program == best->program) {
        printf("auto takes the quickest of them: %s%s%s\n", mine->words,
               mine == best ? "" : ", which is the same plan as ", mine == best ? "" : best->words);
        return;
    }
    printf("auto takes %s: %.1f %% slower than the quickest, %s", mine->words, 100 * v->slower,
           best->words);
    if (!isnan(v->slower_most))
        printf(" (by rounds at most %.1f %%, at 95 %%)", 100 * v->slower_most);
    fputc('\n', stdout);
}

void meg_contest_print(const meg_contest *c)
{
    meg_judgement v = meg_contest_judge(c);
    printf("  %11s  %10s  %16s  %5s  %15s  %15s  %10s        %s\n", "predicted s", "measured s",
           "of rounds", "ratio", "predicted bytes", "measured bytes", "difference", "words");
    for (int i = 0; i < c->count; i++)
        print_row(&c->list[i]);
    if (v.pairs && v.pairs == v.right)
        printf("order: as predicted (%d pair%s)\n", v.pairs, v.pairs == 1 ? "" : "s");
    else if (v.pairs) printf("order: %d of %d pairs as predicted\n", v.right, v.pairs);
    print_surprises(c);
    print_choice(c, &v);
}

/* ---- for programs ---- */

static void record_one(const meg_contender *p, int number)
{
    meg_record r = {0};
    bool measured = ran(p);
    meg_record_int(&r, "plan", number);
    meg_record_text(&r, "words", p->words);
    if (p->chosen) meg_record_true(&r, "auto");
    meg_record_real(&r, "predicted_seconds_per_step", p->predicted > 0 ? p->predicted : NAN);
    meg_record_real(&r, "seconds_per_step", measured ? seconds_of(p) : NAN);
    meg_record_real(&r, "seconds_deviation", measured ? meg_measure_deviation(&p->steps) : NAN);
    meg_record_real(&r, "seconds_least", measured ? meg_measure_least(&p->rounds) : NAN);
    meg_record_real(&r, "seconds_most", measured ? meg_measure_most(&p->rounds) : NAN);
    meg_record_real(&r, "ratio", measured && p->predicted > 0 ? seconds_of(p) / p->predicted : NAN);
    meg_record_int(&r, "steps", (int64_t)p->steps.count);
    meg_record_int(&r, "predicted_peak_bytes", p->bytes);
    meg_record_int(&r, "measured_peak_bytes", p->measured);
    if (p->trouble) meg_record_text(&r, "error", p->trouble);
    meg_record_end(&r);
}

void meg_contest_record(const meg_contest *c)
{
    for (int i = 0; i < c->count; i++)
        for (size_t k = 0; k < c->list[i].rounds.count; k++) {
            meg_record r = {0};
            meg_record_int(&r, "plan", i);
            meg_record_int(&r, "round", (int64_t)k + 1);
            meg_record_real(&r, "seconds_per_step", c->list[i].rounds.at[k]);
            meg_record_end(&r);
        }
    for (int i = 0; i < c->count; i++)
        record_one(&c->list[i], i);
}
