/* The critical path: see critical.h. Times of spans that caused one another are equal to the last bit, since both are
 * the replay's clock at one moment. Traffic may take no time at all; so that the walk ends it goes to spans that were
 * told earlier, always.
 */
#include "plan/replay/critical.h"
#include "base/pool.h"

#include <stdlib.h>

/* ---- what was told ---- */

void meg_replay_log_begin(meg_replay_log *log, int actors)
{
    *log = (meg_replay_log){.actors = actors, .of = calloc((size_t)actors + 1, sizeof *log->of)};
    if (!log->of) abort();
}

void meg_replay_log_add(void *context, const meg_replay_span *span)
{
    meg_replay_log *log = context;
    struct meg_replay_told *of = &log->of[span->actor];
    size_t want = (size_t)of->count + 1;
    of->span = meg_grow(of->span, &of->room, want, sizeof *of->span);
    of->order = meg_grow(of->order, &of->order_room, want, sizeof *of->order);
    of->order[of->count] = log->told++;
    of->span[of->count++] = *span;
}

void meg_replay_log_free(meg_replay_log *log)
{
    for (int i = 0; i < log->actors; i++) {
        free(log->of[i].span);
        free(log->of[i].order);
    }
    free(log->of);
    *log = (meg_replay_log){0};
}

/* ---- the walk back ---- */

typedef struct place { /* a span; at < 0: none */
    int actor, at;
} place;

typedef struct walk {
    const meg_replay_job *job;
    const meg_replay_log *log;
    meg_critical *out;
} walk;

static const place NOWHERE = {-1, -1};

static const meg_replay_span *span_at(const walk *w, place p)
{
    return &w->log->of[p.actor].span[p.at];
}

static int order_of(const walk *w, place p)
{
    return w->log->of[p.actor].order[p.at];
}

static const meg_traffic_note *note_of(const walk *w, place p)
{
    return &w->job->actor[p.actor].events.note[span_at(w, p)->number];
}

static int actor_of(const walk *w, int rank)
{
    return w->job->actor_of ? w->job->actor_of[rank] : rank;
}

/* The first of an actor's spans that end at a time, or later. */
static int first_ending(const walk *w, int actor, double time)
{
    const struct meg_replay_told *of = &w->log->of[actor];
    int lo = 0, hi = of->count;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (of->span[middle].end < time) lo = middle + 1;
        else hi = middle;
    }
    return lo;
}

/* What ended on an actor at this very time and was told before: kernels if there are any, else the last traffic. */
static place ended(const walk *w, int actor, double time, int before)
{
    const struct meg_replay_told *of = &w->log->of[actor];
    place found = NOWHERE;
    for (int i = first_ending(w, actor, time); i < of->count && of->span[i].end <= time; i++) {
        if (of->order[i] >= before) break;
        found = (place){actor, i};
        if (of->span[i].what == MEG_REPLAY_WORK) break;
    }
    return found;
}

/* The same message or sum, as another actor was told of it. */
static place side_of(const walk *w, place p, int actor)
{
    const meg_replay_span *mine = span_at(w, p);
    const meg_traffic_note *n = note_of(w, p);
    const struct meg_replay_told *of = &w->log->of[actor];
    for (int i = first_ending(w, actor, mine->end); i < of->count; i++) {
        place q = {actor, i};
        const meg_replay_span *s = &of->span[i];
        if (s->end > mine->end) break;
        if (s->what != MEG_REPLAY_TRAFFIC || s->begin < mine->begin || s->begin > mine->begin)
            continue;
        const meg_traffic_note *o = note_of(w, q);
        bool sum = n->code == MEG_REDUCE && o->code == MEG_REDUCE;
        bool pair = n->code != MEG_REDUCE && o->code != MEG_REDUCE && o->code != n->code &&
                    actor_of(w, o->peer) == p.actor;
        if (o->tag == n->tag && (sum || pair)) return q;
    }
    return NOWHERE;
}

/* Where actors stand for ranks with unlike neighbours (likes.h), a message's other side is any actor. */
static place ended_anywhere(const walk *w, double time, int before)
{
    place found = NOWHERE;
    for (int i = 0; i < w->job->actors && found.at < 0; i++)
        found = ended(w, i, time, before);
    return found;
}

/* What traffic had to wait for: of the sides, the one where something ended when it began. */
static place cause_of_traffic(const walk *w, place p)
{
    const meg_traffic_note *n = note_of(w, p);
    const meg_team *team = n->code == MEG_REDUCE ? &w->job->actor[p.actor].team[n->crew] : NULL;
    double time = span_at(w, p)->begin;
    int sides = team ? team->count : 1, before = order_of(w, p);
    for (int i = -1; i < sides; i++) {
        int rank = i < 0 ? w->job->actor[p.actor].rank : team ? team->rank[i] : n->peer;
        place side = i < 0 ? p : side_of(w, p, actor_of(w, rank));
        if (side.at < 0) continue;
        place found = ended(w, side.actor, time,
                            order_of(w, side) < before ? order_of(w, side) : before);
        if (found.at >= 0) return found;
    }
    return ended_anywhere(w, time, before);
}

static place cause_of(const walk *w, place p)
{
    const meg_replay_span *s = span_at(w, p);
    if (s->what == MEG_REPLAY_TRAFFIC) return cause_of_traffic(w, p);
    return ended(w, p.actor, s->begin, order_of(w, p));
}

static meg_critical_piece piece_of(const walk *w, place p)
{
    const meg_replay_span *s = span_at(w, p);
    meg_critical_piece out = {MEG_CRITICAL_WORK, p.actor, -1, s->number, p.actor, s->begin, s->end};
    if (s->what == MEG_REPLAY_WORK) return out;
    const meg_traffic_note *n = note_of(w, p);
    if (n->code == MEG_REDUCE) {
        const meg_team *team = &w->job->actor[p.actor].team[n->crew];
        out.what = MEG_CRITICAL_SUM;
        out.actor = actor_of(w, team->rank[0]);
        out.other = team->count;
        return out;
    }
    int peer = actor_of(w, n->peer);
    out.what = MEG_CRITICAL_MESSAGE;
    out.other = n->code == MEG_SEND ? peer : p.actor;
    out.actor = n->code == MEG_SEND ? p.actor : peer;
    return out;
}

/* Behind the last one, which is later. Kernels of one rank in a row are one piece. */
static void add_piece(meg_critical *c, meg_critical_piece p)
{
    meg_critical_piece *last = c->pieces ? &c->piece[c->pieces - 1] : NULL;
    if (p.begin < c->begin) p.begin = c->begin;
    if (p.end <= p.begin) return;
    if (last && p.what == MEG_CRITICAL_WORK && last->what == p.what && last->actor == p.actor) {
        last->begin = p.begin;
        return;
    }
    c->piece = meg_grow(c->piece, &c->piece_room, (size_t)c->pieces + 1, sizeof *c->piece);
    c->piece[c->pieces++] = p;
}

static void walk_back(const walk *w, int last)
{
    meg_critical *c = w->out;
    place at = ended(w, last, c->end, w->log->told);
    double reached = c->end;
    int actor = last;
    while (at.at >= 0 && reached > c->begin) {
        add_piece(c, piece_of(w, at));
        reached = span_at(w, at)->begin;
        actor = at.actor;
        at = cause_of(w, at);
    }
    if (reached > c->begin)
        add_piece(c,
                  (meg_critical_piece){MEG_CRITICAL_WAIT, actor, -1, 0, actor, c->begin, reached});
    for (int i = 0, k = c->pieces - 1; i < k; i++, k--) {
        meg_critical_piece other = c->piece[i];
        c->piece[i] = c->piece[k];
        c->piece[k] = other;
    }
}

/* ---- parts ---- */

static int larger(const void *a, const void *b)
{
    const meg_critical_part *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? 1 : -1;
    if (x->what != y->what) return (int)x->what - (int)y->what;
    return x->actor != y->actor ? x->actor - y->actor : x->other - y->other;
}

static void add_parts(meg_critical *c)
{
    for (int i = 0; i < c->pieces; i++) {
        const meg_critical_piece *p = &c->piece[i];
        int k = 0;
        while (k < c->parts && (c->part[k].what != p->what || c->part[k].actor != p->actor ||
                                c->part[k].other != p->other))
            k++;
        if (k == c->parts) {
            c->part = meg_grow(c->part, &c->part_room, (size_t)k + 1, sizeof *c->part);
            c->part[c->parts++] = (meg_critical_part){p->what, p->actor, p->other, 0, 0};
        }
        c->part[k].pieces++;
        c->part[k].seconds += p->end - p->begin;
    }
    if (c->parts) qsort(c->part, (size_t)c->parts, sizeof *c->part, larger);
}

/* When the last actor has ended its last step. */
static double end_of(const meg_replay_log *log, int actor)
{
    const struct meg_replay_told *of = &log->of[actor];
    return of->count ? of->span[of->count - 1].end : 0;
}

void meg_critical_find(const meg_replay_job *job, const meg_replay *r, const meg_replay_log *log,
                       meg_critical *out)
{
    double end = end_of(log, r->last);
    walk w = {job, log, out};
    *out = (meg_critical){.begin = end - r->seconds, .end = end};
    walk_back(&w, r->last);
    add_parts(out);
}

void meg_critical_free(meg_critical *c)
{
    free(c->piece);
    free(c->part);
    *c = (meg_critical){0};
}
