/* The replay of a job: see replay.h. A simulation by events: whatever goes on is an *activity*, with what is
 * left of it in seconds of full speed, and a speed, which depends on what else goes on. Between two ends
 * of activities nothing changes.
 */
#include "plan/replay/replay.h"
#include "base/random.h"
#include "plan/replay/crews.h"
#include "plan/replay/crossing.h"
#include "plan/replay/likes.h"
#include "plan/replay/meetings.h"
#include "plan/replay/resources.h"
#include "plan/replay/transit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 2 /* that are replayed: the second shows the pace */
};

typedef enum state {
    POSTED, /* kernels before it are not done, or earlier traffic has its memory */
    READY,  /* waits for the other side */
    MOVING,
    DONE
} state;

typedef struct item { /* a note of an actor, in the step at hand */
    state state;
    int blockers; /* its kernels, and earlier traffic that must be done before */
    double posted;
} item;

typedef struct mark { /* something that happens when an actor has done so much work */
    double at;
    int note; /* may begin; -1 - k: the work before step k is done */
} mark;

typedef struct actor {
    const meg_actor *is;
    const meg_events *events;
    meg_crew *crew;   /* (teams) */
    int node, copies; /* ranks of it on its node, */
    int sharers;      /* and where its cores are */
    item *item;
    int next, step;      /* of the events; of the job */
    int waits;           /* for a note; -1: for none */
    double issued, done; /* seconds of kernels */
    mark *marks;
    int first_mark, last_mark;
    size_t mark_room;
    bool works, finished;
    double end[STEPS];
    meg_replay_times times;
} actor;

typedef struct activity {
    double left, speed;
    int actor;          /* whose kernels; -1: traffic */
    meg_meeting *where; /* traffic: all of its sides */
    double begin;
    meg_transit transit; /* still to come, while there is latency */
    bool latent, seen;   /* its latency goes on; what its ranks overlook has been added to it */
    meg_wants wants;
} activity;

typedef struct replay {
    const meg_replay_job *job;
    actor *actor;
    activity *act;
    int acts;
    size_t act_room;
    meg_meetings *meetings;
    meg_likes
        *likes; /* where actors stand for several ranks: sides of messages begin each for itself */
    meg_crossings *crossings; /* likewise */
    meg_resources resources;
    meg_transits sums;
    double now;
    int running; /* actors that are not finished */
    meg_replay_observer *observer;
    void *context;
} replay;

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

static int actor_of(const replay *r, int rank)
{
    return r->job->actor_of ? r->job->actor_of[rank] : rank;
}

static int rank_of(const replay *r, int who)
{
    return r->actor[who].is->rank;
}

/* What is wanted more than there is slows down all that want it, alike. */
static void set_speeds(replay *r)
{
    for (int i = 0; i < r->acts; i++)
        meg_resources_load(&r->resources, &r->act[i].wants);
    for (int i = 0; i < r->acts; i++)
        r->act[i].speed = meg_resources_speed(&r->resources, &r->act[i].wants);
    for (int i = 0; i < r->acts; i++)
        meg_resources_unload(&r->resources, &r->act[i].wants);
}

static void want(const replay *r, activity *a, int resource, double amount)
{
    meg_wants_add(&r->resources, &a->wants, resource, amount);
}

static int node_of(const replay *r, int node, meg_resource kind)
{
    return meg_resource_of(&r->resources, node, kind);
}

static void add_activity(replay *r, const activity *a)
{
    r->act = meg_grow(r->act, &r->act_room, (size_t)r->acts + 1, sizeof *r->act);
    r->act[r->acts++] = *a;
}

/* ---- traffic: waits for all sides, then for its latency, then moves ---- */

static const meg_traffic_note *note_at(const replay *r, meg_side s)
{
    return &r->actor[s.actor].events->note[s.note];
}

/* A device that works keeps its rank from looking at messages but now and then, while it has work. */
static double overlooked_by(const actor *a, const meg_transit *t)
{
    return fmin(a->issued - a->done, t->looks * MEG_EVENTS_LOOK / 2);
}

static double overlooked(const replay *r, const meg_meeting *m, const meg_transit *t)
{
    const meg_traffic_note *n = note_at(r, m->side[0]);
    const actor *a = &r->actor[m->side[0].actor];
    double most = 0;
    for (int i = 0; i < m->sides; i++)
        most = fmax(most, overlooked_by(&r->actor[m->side[i].actor], t));
    if (!r->likes) return most;
    if (n->code != MEG_REDUCE) return fmax(most, overlooked_by(&r->actor[actor_of(r, n->peer)], t));
    const meg_crew *crew = &a->crew[n->crew];
    for (int i = 0; i < crew->actors; i++)
        most = fmax(most, overlooked_by(&r->actor[crew->who[i]], t));
    return most;
}

/* Of like messages that take the slowest link which one of them takes. */
static meg_transit transit_of(const replay *r, meg_side s)
{
    const meg_machine *m = r->job->machine;
    const meg_traffic_note *n = note_at(r, s);
    int from = rank_of(r, s.actor), to = n->peer;
    if (r->likes && from != to) {
        bool crosses = meg_crossings_of(r->crossings, s.actor, to).out > 0;
        from = 0;
        to = crosses ? (int)m->ranks : 1;
        if (!crosses && m->ranks == 1) to = from;
    }
    return meg_transit_message(m, from, to, n->bytes);
}

static void begin_traffic(replay *r, meg_meeting *m)
{
    activity a = {.actor = -1, .where = m, .begin = r->now, .latent = true};
    const meg_traffic_note *n = note_at(r, m->side[0]);
    bool sum = n->code == MEG_REDUCE;
    if (sum)
        a.transit = meg_actor_sum(r->actor[m->side[0].actor].is, m->side[0].note, r->job->machine,
                                  &r->sums);
    else a.transit = transit_of(r, m->side[0]);
    for (int i = 0; i < m->sides; i++)
        r->actor[m->side[i].actor].item[m->side[i].note].state = MOVING;
    a.left = a.transit.latency;
    add_activity(r, &a);
}

/* How many like this are under way on the node at once: each rank that the actor stands for has a message of its own, of which
 * those that go elsewhere share what there is; but those of one team have one sum together. */
static double beside(const replay *r, const meg_meeting *m)
{
    const actor *from = &r->actor[m->side[0].actor];
    const meg_traffic_note *n = note_at(r, m->side[0]);
    int together = 0;
    if (n->code != MEG_REDUCE && r->likes) {
        meg_crossing_ranks c = meg_crossings_of(r->crossings, m->side[0].actor, n->peer);
        return fmax(1, c.out ? c.out : c.inside);
    }
    if (n->code != MEG_REDUCE) return from->copies;
    const meg_team *team = &from->is->team[n->crew];
    for (int i = 0; i < team->count; i++)
        together += meg_machine_node(r->job->machine, team->rank[i]) == from->node &&
                    actor_of(r, team->rank[i]) == m->side[0].actor;
    return (double)from->copies / fmax(1, together);
}

/* Both ends of a message, or all ranks of a sum, keep cores busy. Of a sum on many nodes two stand for all, since it is slowed
 * down alike, unless all nodes share their cores. */
static void want_cores(const replay *r, activity *a)
{
    const meg_meeting *m = a->where;
    bool pooled = r->resources.pooled;
    for (int i = 0; i < m->sides && (i < 2 || pooled); i++) {
        const actor *side = &r->actor[m->side[i].actor];
        double ranks = pooled ? side->sharers : side->copies;
        if (i < 2) want(r, a, m->side[i].actor, a->transit.cpu);
        want(r, a, node_of(r, side->node, MEG_CORES), a->transit.cpu * ranks);
    }
}

static void move(replay *r, activity *a)
{
    const meg_transit *t = &a->transit;
    const meg_meeting *m = a->where;
    const actor *from = &r->actor[m->side[0].actor];
    double copies = beside(r, m);
    int32_t code = note_at(r, m->side[0])->code;
    bool half = r->likes && code != MEG_REDUCE; /* the other side wants the rest by itself */
    a->latent = false;
    a->left = t->seconds;
    want_cores(r, a);
    want(r, a, node_of(r, from->node, MEG_INSIDE), t->inside * copies / (half ? 2 : 1));
    want(r, a, node_of(r, from->node, half && code == MEG_RECV ? MEG_IN : MEG_OUT),
         t->out * copies);
    want(r, a, node_of(r, from->node, MEG_BOTH), t->out * copies * (code == MEG_REDUCE ? 2 : 1));
    if (m->sides == 1) return;
    int other = r->actor[m->side[1].actor].node;
    want(r, a, node_of(r, other, MEG_IN), t->out * copies);
    if (code != MEG_REDUCE) want(r, a, node_of(r, other, MEG_BOTH), t->out * copies);
}

static uint64_t key_of(const replay *r, meg_side s)
{
    const meg_traffic_note *n = note_at(r, s);
    uint64_t key = meg_hash_word(meg_hash(n->code == MEG_REDUCE ? "sum" : "message"),
                                 (uint64_t)n->tag);
    if (n->code == MEG_REDUCE) return meg_hash_word(key, r->actor[s.actor].crew[n->crew].key);
    int peer = actor_of(r, n->peer), from = n->code == MEG_SEND ? s.actor : peer;
    int to = n->code == MEG_SEND ? peer : s.actor;
    return meg_hash_word(meg_hash_word(key, (uint64_t)from), (uint64_t)to);
}

static void begin_alone(replay *r, meg_side s)
{
    begin_traffic(r, meg_meeting_alone(s));
}

/* All that it waits for are there. */
static bool meets_all(replay *r, meg_like_side s)
{
    const actor *a = &r->actor[s.actor];
    const meg_traffic_note *n = &a->events->note[s.note];
    if (n->code != MEG_REDUCE) return meg_likes_meet(r->likes, s, actor_of(r, n->peer));
    const meg_crew *crew = &a->crew[n->crew];
    for (int i = 0; i < crew->actors; i++)
        if (!meg_likes_meet(r->likes, s, crew->who[i])) return false;
    return true;
}

/* One side, as likes.h has it. */
static void arrive_alike(replay *r, meg_side s)
{
    meg_like_side one = meg_likes_post(r->likes, s.actor, s.note, r->actor[s.actor].step);
    if (meets_all(r, one)) begin_alone(r, s);
    while (meg_likes_next(r->likes, &one))
        if (meets_all(r, one)) begin_alone(r, (meg_side){one.actor, one.note});
}

static void arrive(replay *r, meg_side s)
{
    const meg_traffic_note *n = note_at(r, s);
    bool sums = n->code == MEG_REDUCE;
    meg_side_kind message = n->code == MEG_SEND ? MEG_SIDE_SENDS : MEG_SIDE_RECEIVES;
    r->actor[s.actor].item[s.note].state = READY;
    if (r->likes) {
        arrive_alike(r, s);
        return;
    }
    meg_meeting *m = meg_meetings_join(r->meetings, key_of(r, s), s, sums ? MEG_SIDE_SUMS : message,
                                       sums ? r->actor[s.actor].crew[n->crew].actors : 2);
    if (m) begin_traffic(r, m);
}

/* One reason less to wait. */
static void release(replay *r, meg_side s)
{
    if (--r->actor[s.actor].item[s.note].blockers == 0) arrive(r, s);
}

/* ---- actors ---- */

static void add_mark(actor *a, int note)
{
    a->marks = meg_grow(a->marks, &a->mark_room, (size_t)a->last_mark + 1, sizeof *a->marks);
    a->marks[a->last_mark++] = (mark){a->issued, note};
}

/* Kernels use all cores of their rank. A device that had nothing to do must wake up first. */
static void begin_work(replay *r, int who, double wake)
{
    actor *a = &r->actor[who];
    if (a->works || a->first_mark == a->last_mark) return;
    double left = a->marks[a->first_mark].at - a->done + wake;
    activity w = {.left = left, .actor = who, .begin = r->now};
    double cores = meg_cores_of_rank(r->job->machine);
    want(r, &w, who, cores);
    want(r, &w, node_of(r, a->node, MEG_CORES), cores * a->sharers);
    a->works = true;
    add_activity(r, &w);
}

static void post(replay *r, int who, int note)
{
    actor *a = &r->actor[who];
    const meg_traffic_note *n = &a->events->note[note];
    int blockers = 1; /* until all are counted */
    for (int i = 0; i < n->afters; i++)
        blockers += a->item[a->events->after[n->after + i]].state != DONE;
    bool late = a->issued > a->done;
    a->item[note] = (item){POSTED, blockers + late, r->now};
    if (late) add_mark(a, note);
    release(r, (meg_side){who, note});
}

/* The host's own work, where it has no core of its own: its workers wait meanwhile. */
static double host_work(const replay *r, const actor *a)
{
    const meg_events *v = a->events;
    bool shares = meg_cores_of_rank(r->job->machine) < a->is->threads + 1;
    bool posts = a->next < v->steps && v->step[a->next] >= 0;
    return shares ? v->issued[a->next] * a->is->issue + posts * a->is->post : 0;
}

static void begin_step(actor *a)
{
    a->next = 0;
    memset(a->item, 0, (size_t)a->events->notes * sizeof *a->item);
}

/* The host's thread: as far as it comes without waiting. */
static void go_on(replay *r, int who)
{
    actor *a = &r->actor[who];
    const meg_events *v = a->events;
    double wake = a->waits >= 0 ? a->is->resume : a->is->wake;
    while (!a->finished) {
        if (a->waits >= 0 && a->item[a->waits].state != DONE) break;
        a->waits = -1;
        bool end = a->next == v->steps;
        double work = v->before[a->next] + host_work(r, a);
        if (work > 0) {
            a->issued += work;
            a->times.compute += work;
            add_mark(a, -1 - a->next);
        }
        if (end) { /* the engine waits for the device */
            a->finished = true;
            break;
        }
        int step = v->step[a->next++];
        if (step >= 0) post(r, who, step);
        else a->waits = -1 - step;
    }
    begin_work(r, who, wake);
}

static void finish_step(replay *r, int who)
{
    actor *a = &r->actor[who];
    a->end[a->step++] = r->now;
    if (a->step == STEPS) {
        r->running--;
        return;
    }
    a->finished = false;
    begin_step(a);
    go_on(r, who);
}

static bool at_end(const actor *a)
{
    return a->finished && !a->works && a->first_mark == a->last_mark && a->step < STEPS;
}

/* ---- ends of activities ---- */

static void end_work(replay *r, int who, double begin)
{
    actor *a = &r->actor[who];
    double reached = a->marks[a->first_mark].at;
    a->done = reached;
    a->works = false;
    while (a->first_mark < a->last_mark && a->marks[a->first_mark].at <= reached) {
        int note = a->marks[a->first_mark++].note;
        if (note >= 0) release(r, (meg_side){who, note});
        else if (r->observer)
            r->observer(r->context, &(meg_replay_span){.what = MEG_REPLAY_WORK,
                                                       .actor = who,
                                                       .number = -1 - note,
                                                       .step = a->step,
                                                       .posted = begin,
                                                       .begin = begin,
                                                       .end = r->now});
    }
    begin_work(r, who, 0);
}

static void end_side(replay *r, meg_side s, double begin)
{
    actor *a = &r->actor[s.actor];
    item *it = &a->item[s.note];
    it->state = DONE;
    if (r->observer)
        r->observer(r->context, &(meg_replay_span){.what = MEG_REPLAY_TRAFFIC,
                                                   .actor = s.actor,
                                                   .number = s.note,
                                                   .step = a->step,
                                                   .posted = it->posted,
                                                   .begin = begin,
                                                   .end = r->now});
    for (int i = a->is->heirs[s.note]; i < a->is->heirs[s.note + 1]; i++)
        if (a->item[a->is->heir[i]].blockers > 0) release(r, (meg_side){s.actor, a->is->heir[i]});
    if (a->waits == s.note) go_on(r, s.actor);
}

static void end_activity(replay *r, activity a)
{
    if (a.actor >= 0) {
        end_work(r, a.actor, a.begin);
        return;
    }
    for (int i = 0; i < a.where->sides; i++)
        end_side(r, a.where->side[i], a.begin);
    meg_meeting_free(a.where);
}

/* ---- time ---- */

/* Devices that have nothing to do: because of what? */
static void count_waiting(replay *r, double seconds)
{
    for (int i = 0; i < r->job->actors; i++) {
        actor *a = &r->actor[i];
        if (a->works || a->step == STEPS) continue;
        bool moves = a->waits >= 0 && a->item[a->waits].state == MOVING;
        *(moves ? &a->times.exposed : &a->times.bubble) += seconds;
    }
}

static bool pass(replay *r)
{
    double least = INFINITY;
    set_speeds(r);
    for (int i = 0; i < r->acts; i++)
        least = fmin(least, r->act[i].left / r->act[i].speed);
    if (r->acts == 0) return false;
    count_waiting(r, least);
    r->now += least;
    for (int i = 0; i < r->acts; i++)
        r->act[i].left -= least * r->act[i].speed;
    for (int i = 0; i < r->acts;) {
        activity *a = &r->act[i];
        if (a->left > 1e-12) {
            i++;
            continue;
        }
        if (a->latent && !a->seen) {
            a->seen = true;
            a->left = overlooked(r, a->where, &a->transit);
            if (a->left > 0) continue;
        }
        if (a->latent) {
            move(r, a);
            if (a->left > 0) continue;
        }
        activity over = *a;
        *a = r->act[--r->acts];
        end_activity(r, over); /* may add some, behind */
    }
    for (int i = 0; i < r->job->actors; i++)
        if (at_end(&r->actor[i])) finish_step(r, i);
    return true;
}

/* ---- all of it ---- */

static int count_copies(const replay *r, int who, int first, int64_t ranks)
{
    int count = 0;
    for (int i = first; i < first + ranks && i < r->job->ranks; i++)
        count += actor_of(r, i) == who;
    return count;
}

static void open_actor(replay *r, int who)
{
    actor *a = &r->actor[who];
    const meg_actor *is = &r->job->actor[who];
    const meg_machine *m = r->job->machine;
    *a = (actor){.is = is, .events = &is->events, .waits = -1};
    a->node = meg_machine_node(m, is->rank);
    a->copies = count_copies(r, who, a->node * (int)m->ranks, m->ranks);
    a->sharers = m->all_cores ? count_copies(r, who, 0, r->job->ranks) : a->copies;
    a->item = zeroed((size_t)is->events.notes, sizeof *a->item);
    a->crew = meg_crews_new(r->job, is);
}

static void close(replay *r)
{
    for (int i = 0; i < r->job->actors; i++) {
        actor *a = &r->actor[i];
        meg_crews_free(a->crew, a->is->teams);
        free(a->item);
        free(a->marks);
    }
    meg_meetings_free(r->meetings);
    meg_likes_free(r->likes);
    meg_crossings_free(r->crossings);
    free(r->actor);
    free(r->act);
    meg_resources_free(&r->resources);
    meg_transits_free(&r->sums);
    free(r);
}

static void tell(const replay *r, meg_replay *out)
{
    double first = 0, last = 0;
    *out = (meg_replay){.times = calloc((size_t)r->job->actors, sizeof *out->times)};
    if (!out->times) abort();
    for (int i = 0; i < r->job->actors; i++) {
        const actor *a = &r->actor[i];
        first = fmax(first, a->end[0]);
        if (a->end[STEPS - 1] > last) last = a->end[STEPS - 1], out->last = i;
        out->times[i] = (meg_replay_times){a->times.compute / STEPS, a->times.exposed / STEPS,
                                           a->times.bubble / STEPS};
    }
    out->seconds = (last - first) / (STEPS - 1);
}

meg_status meg_replay_run(const meg_replay_job *job, meg_error *e, meg_replay_observer *observer,
                          void *context, meg_replay *out)
{
    replay *r = calloc(1, sizeof *r);
    if (!r) abort();
    *r = (replay){.job = job, .running = job->actors, .observer = observer, .context = context};
    r->actor = calloc((size_t)job->actors, sizeof *r->actor);
    if (!r->actor) abort();
    r->meetings = meg_meetings_new();
    r->resources = meg_resources_new(job->machine, job->ranks, job->actors);
    if (job->actors < job->ranks) {
        r->likes = meg_likes_new(job->actors, job->actor);
        r->crossings = meg_crossings_new(job);
    }
    for (int i = 0; i < job->actors; i++)
        open_actor(r, i);
    for (int i = 0; i < job->actors; i++)
        go_on(r, i);
    for (int i = 0; i < job->actors; i++)
        if (at_end(&r->actor[i])) finish_step(r, i);
    while (r->running > 0 && pass(r))
        continue;
    int stuck = 0;
    while (stuck < job->actors && r->actor[stuck].step == STEPS)
        stuck++;
    meg_status status = MEG_OK;
    if (r->running > 0)
        status = meg_fail(e, MEG_EPEER, "replay: rank %d waits for ever", rank_of(r, stuck));
    else tell(r, out);
    close(r);
    return status;
}
