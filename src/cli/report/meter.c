/* The meter: see meter.h. */
#include "cli/report/meter.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

enum {
    LINES = 20 /* per epoch */
};
static const double PAUSE = 0.1; /* seconds between drawings */

void meg_meter_begin(meg_meter *m, int64_t every, int64_t total, int64_t per_epoch)
{
    bool live = every == 0 && isatty(STDERR_FILENO);
    if (every == 0) every = (per_epoch + LINES - 1) / LINES;
    *m = (meg_meter){.every = every > 0 ? every : 1, .total = total, .live = live};
}

void meg_score_text(double accuracy, double error, meg_score out)
{
    if (isnan(accuracy)) snprintf(out, sizeof(meg_score), "MAE %.4g", error);
    else snprintf(out, sizeof(meg_score), "accuracy %.2f %%", 100 * accuracy);
}

static void print_line(const meg_meter *m, const meg_progress *p)
{
    meg_duration left;
    double pace = m->seconds > 0 ? m->samples / m->seconds : 0;
    meg_duration_text((double)(m->total - p->step) * meg_measure_mean(&m->time), left);
    meg_score score;
    meg_score_text(m->correct / m->samples, m->error / m->samples, score);
    fprintf(stderr,
            "epoch %.2f  step %" PRId64 "/%" PRId64 "  loss %.4f  %s  lr %.4g  %.1f images/s"
            "  %s left",
            p->epoch, p->step, m->total, m->loss / m->samples, score, p->lr, pace, left);
}

static void draw(meg_meter *m, const meg_progress *p)
{
    double now = meg_clock();
    if (m->drawn && now - m->last < PAUSE) return;
    fputs("\r\033[K", stderr);
    print_line(m, p);
    m->drawn = true;
    m->last = now;
}

void meg_meter_step(meg_meter *m, const meg_progress *p)
{
    double samples = (double)p->samples;
    m->loss += p->loss * samples;
    m->correct += p->accuracy * samples;
    m->error += p->error * samples;
    m->samples += samples;
    m->seconds += p->seconds;
    meg_measure_add(&m->time, p->seconds);
    if (m->live) {
        draw(m, p);
    } else if (p->step % m->every == 0) {
        print_line(m, p);
        fputc('\n', stderr);
    }
}

void meg_meter_epoch(meg_meter *m)
{
    if (m->drawn) fputs("\r\033[K", stderr);
    m->drawn = false;
    m->loss = m->correct = m->error = m->samples = m->seconds = 0;
}

void meg_meter_end(meg_meter *m)
{
    meg_meter_epoch(m);
    meg_measure_free(&m->time);
}
