/* Footprints: see footprint.h. */
#include "plan/partition/footprint.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- a stage ---- */

void meg_frame_add(meg_frame *f, const meg_piece *p, int sides)
{
    int64_t now = p->kept + p->swell[sides] + f->late;
    f->midst = larger(f->midst + p->kept, now);
    f->peak = larger(f->peak + p->kept, now + p->temporary[sides]);
    f->kept += p->kept;
    f->late += p->late;
}

int64_t meg_frame_bytes(const meg_frame *f)
{
    return f->stays + larger(larger(f->kept + f->sent, f->midst), f->late + f->returned);
}

int64_t meg_frame_peak(const meg_frame *f)
{
    return f->stays + larger(f->peak + f->sent, f->late + f->returned);
}

/* What the flows of one value, `count` from `f` on, add to the frames of stage s. */
static void add_value(meg_frame *to, const meg_flow *f, int count, const int stage[], int s)
{
    int64_t stash = 0, sent = 0, arrived = 0, returned = 0;
    for (int i = 0; i < count; i++) {
        bool makes = stage[f[i].from] == s, reads = stage[f[i].to] == s;
        if (makes && reads) stash = larger(stash, f[i].stash);
        if (makes && !reads) sent = larger(sent, f[i].sent);
        if (reads && !makes) arrived = larger(arrived, f[i].arrived);
        if (reads && !makes) returned = larger(returned, f[i].returned);
    }
    to->stays += stash + arrived;
    to->sent += sent;
    to->returned += returned;
}

/* From the last piece to the first, as backward has them. `of` has what they hold and what is temporary. */
static void add_pieces(meg_frame *to, meg_footprint *of, const meg_cut *c, const int stage[], int s)
{
    int first = 0, behind = 0;
    while (first < c->pieces && stage[first] != s)
        first++;
    for (int i = c->pieces - 1; i >= first; i--) {
        const meg_piece *p = &c->piece[i];
        if (stage[i] != s) continue;
        int sides = (i > first ? MEG_BEFORE : 0) + behind;
        behind = MEG_BEHIND;
        meg_frame_add(to, p, sides);
        of->held += p->held;
        of->summed += p->summed;
        of->temporary = larger(of->temporary, p->temporary[sides]);
    }
}

meg_footprint meg_footprint_of(const meg_cut *c, const int stage[], int s)
{
    meg_footprint f = {0};
    meg_frame frame = {0};
    add_pieces(&frame, &f, c, stage, s);
    for (int i = 0, end; i < c->flows; i = end) {
        for (end = i; end < c->flows && c->flow[end].value == c->flow[i].value;)
            end++;
        add_value(&frame, &c->flow[i], end - i, stage, s);
    }
    f.frame = meg_frame_bytes(&frame);
    f.peak = meg_frame_peak(&frame);
    return f;
}

/* ---- a rank ---- */

static int frames_of(const meg_cut *c, int direction, int s)
{
    return c->frames ? c->frames[direction * c->stages + s] : 1;
}

static bool sits(const meg_cut *c, int direction, int s, int rank)
{
    if (!c->seat) return s == rank;
    int behind = rank - c->seat[direction * c->stages + s];
    return behind >= 0 && behind < c->width[direction * c->stages + s];
}

static int directions_of(const meg_cut *c)
{
    return c->directions ? c->directions : 1;
}

static int stations_of(const meg_cut *c, int rank)
{
    int count = 0;
    for (int d = 0; d < directions_of(c); d++)
        for (int s = 0; s < c->stages; s++)
            count += sits(c, d, s, rank);
    return count;
}

/* Do several ranks have the stage, and hence the same weights? */
static bool is_shared(const meg_cut *c, int s)
{
    if (c->replicas > 1) return true;
    return c->seat && directions_of(c) > 1 && c->seat[s] != c->seat[c->stages + s];
}

static int64_t held_of(const meg_cut *c, int s, const meg_footprint *f)
{
    if (!is_shared(c, s)) return f->held;
    return f->held + (f->summed < c->scratch ? f->summed : c->scratch);
}

int64_t meg_station_bytes(const meg_cut *c, int direction, int s, const meg_footprint *f)
{
    int64_t share = c->share ? c->share[s] : 1;
    int frames = frames_of(c, direction, s);
    return held_of(c, s, f) + (frames == 1 ? f->peak : frames * f->frame + f->temporary) / share;
}

int64_t meg_rank_bytes(const meg_cut *c, int rank, const meg_footprint of[], int stages)
{
    int64_t bytes = 0, temporary = 0;
    bool alone = stations_of(c, rank) == 1;
    for (int s = 0; s < stages; s++) {
        int64_t share = c->share ? c->share[s] : 1;
        bool here = false;
        for (int d = 0; d < directions_of(c); d++) {
            if (!sits(c, d, s, rank)) continue;
            if (alone) return meg_station_bytes(c, d, s, &of[s]);
            bytes += frames_of(c, d, s) * of[s].frame / share;
            temporary = larger(temporary, of[s].temporary / share);
            here = true;
        }
        if (here) bytes += held_of(c, s, &of[s]);
    }
    return bytes + temporary;
}

int64_t meg_stage_bytes(const meg_cut *c, int s, const meg_footprint of[], int stages)
{
    int64_t most = 0;
    int ranks = c->seat ? c->ranks : c->stages;
    for (int r = 0; r < ranks; r++)
        for (int d = 0; d < directions_of(c); d++)
            if (sits(c, d, s, r)) most = larger(most, meg_rank_bytes(c, r, of, stages));
    return most;
}

int64_t meg_cut_bytes(const meg_cut *c, const int stage[], meg_footprint of[])
{
    int64_t most = 0;
    for (int s = 0; s < c->stages; s++)
        of[s] = meg_footprint_of(c, stage, s);
    for (int s = 0; s < c->stages; s++)
        most = larger(most, meg_stage_bytes(c, s, of, c->stages));
    return most;
}

int64_t meg_plain_bytes(const meg_cut *c, const int stage[], meg_footprint of[])
{
    int64_t most = 0;
    for (int s = 0; s < c->stages; s++) {
        of[s] = meg_footprint_of(c, stage, s);
        most = larger(most, meg_station_bytes(c, 0, s, &of[s]));
    }
    return most;
}

bool meg_cut_is_plain(const meg_cut *c)
{
    int ranks = c->seat ? c->ranks : c->stages;
    for (int r = 0; r < ranks; r++)
        if (stations_of(c, r) != 1) return false;
    return true;
}
