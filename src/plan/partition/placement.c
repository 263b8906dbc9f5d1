/* Places: see places.h. */
#include "plan/partition/placement.h"
#include "plan/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIRECTIONS = 2
};

static int stages_of(const meg_plan *p)
{
    return (int)p->options.stages;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int *place_of(const meg_plan *p, int direction, int stage)
{
    return &p->place[direction * stages_of(p) + stage];
}

/* ---- where stages begin ---- */

/* One behind the other, and the other direction back. Does no stage meet a part of itself? */
static bool in_a_row(meg_plan *p)
{
    int stages = stages_of(p);
    bool fits = true;
    p->each = 0;
    for (int s = 0; s < stages; p->each += p->width[s++])
        *place_of(p, 0, s) = p->each;
    for (int s = 0; s < stages; s++) {
        int there = *place_of(p, 0, s), back = p->each - there - p->width[s];
        fits = fits && (there == back || abs(there - back) >= p->width[s]);
        *place_of(p, 1, s) = back;
    }
    return fits;
}

/* A seat for each stage and its opposite. */
static void in_pairs(meg_plan *p)
{
    int stages = stages_of(p);
    p->each = 0;
    for (int s = 0; s < stages; s++) {
        *place_of(p, 0, s) = *place_of(p, 1, stages - 1 - s) = p->each;
        p->each += larger(p->width[s], p->width[stages - 1 - s]);
    }
}

/* A seat for the stages s, s + seats, ... (schedule=interleaved). */
static void in_turn(meg_plan *p, int seats)
{
    int stages = stages_of(p);
    p->each = 0;
    for (int k = 0; k < seats; k++) {
        int most = 1;
        for (int s = k; s < stages; s += seats) {
            *place_of(p, 0, s) = *place_of(p, 1, s) = p->each;
            most = larger(most, p->width[s]);
        }
        p->each += most;
    }
}

static meg_status place_stages(meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    const meg_row *row = NULL;
    size_t stages = (size_t)o->stages;
    if (strcmp(o->schedule, "auto") != 0) MEG_TRY(e, meg_row_find(e, o->schedule, &row));
    p->directions = row ? row->directions : 1;
    p->place = meg_pool_alloc(p->pool, DIRECTIONS * stages * sizeof *p->place);
    p->width = meg_pool_alloc(p->pool, stages * sizeof *p->width);
    for (int i = 0; i < p->segments; i++)
        p->width[p->segment[i].stage] = larger(p->width[p->segment[i].stage], p->segment[i].size);
    if (o->chunks > 1) in_turn(p, (int)(o->stages / o->chunks));
    else if (!in_a_row(p) && p->directions == 2) in_pairs(p);
    return MEG_OK;
}

/* ---- who this is ---- */

/* Those words that ask for more than one rank: "stages=2 mesh=2x2,1". */
static void name_words(const meg_plan *p, char *out, size_t size)
{
    const meg_plan_options *o = &p->options;
    char brief[MEG_BRIEF];
    size_t used = (size_t)snprintf(out, size, "stages=%" PRId64, o->stages);
    if (o->chunks > 1)
        used += (size_t)snprintf(out + used, size - used, " chunks=%" PRId64, o->chunks);
    if (p->each > o->stages / o->chunks)
        used += (size_t)snprintf(out + used, size - used, " mesh=%s", meg_brief(o->mesh, brief));
    if (o->replicas) snprintf(out + used, size - used, " replicas=%" PRId64, o->replicas);
}

static meg_status find_rank(meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    int ranks = p->world.ranks, each = p->each;
    p->replicas = o->replicas ? (int)o->replicas : larger(ranks / each, 1);
    int64_t most = o->batch / o->micro, wanted = (int64_t)p->replicas * each;
    char words[MEG_TEXT + 96], further[48] = "";
    name_words(p, words, sizeof words);
    if (!o->replicas && ranks > each) /* more replicas would do, too */
        snprintf(further, sizeof further, " or %" PRId64, wanted + each);
    MEG_CHECK(e, wanted == ranks, MEG_EARG,
              "%d rank%s, but %s want%s %" PRId64 "%s: use -np %" PRId64
              "%s (plan, explain: --ranks), or other words",
              ranks, ranks == 1 ? "" : "s", words, strchr(words, ' ') ? "" : "s", wanted, further,
              wanted, further);
    MEG_CHECK(e, p->replicas <= most, MEG_EARG,
              "replicas=%d, but a micro-batch has only %" PRId64 " samples: use 1..%" PRId64
              " replicas, or a larger batch",
              p->replicas, most, most);
    return MEG_OK;
}

/* ---- tracks ---- */

/* They begin and end where stages do; where stages take turns, they are the seats. */
static void find_tracks(meg_plan *p)
{
    bool turns = p->options.chunks > 1;
    bool *edge = calloc((size_t)p->each + 1, sizeof *edge);
    if (!edge) abort();
    for (int d = 0; d < p->directions; d++)
        for (int s = 0; s < stages_of(p); s++) {
            int at = *place_of(p, d, s);
            edge[at] = true;
            if (!turns) edge[at + p->width[s]] = true;
        }
    edge[p->each] = false;
    for (int i = 0; i < p->each; i++)
        p->tracks += edge[i];
    p->track_first = meg_pool_alloc(p->pool, ((size_t)p->tracks + 1) * sizeof(int));
    for (int i = 0, k = 0; i < p->each; i++)
        if (edge[i]) p->track_first[k++] = i;
    p->track_first[p->tracks] = p->each;
    free(edge);
}

void meg_plan_seat(meg_plan *p, int rank)
{
    p->world.rank = rank;
    p->replica = rank / p->each;
    p->track = 0;
    while (p->track_first[p->track + 1] <= rank % p->each)
        p->track++;
}

void meg_plan_tracks(const meg_plan *p, int directions, int *seat, int *width)
{
    for (int i = 0; i < directions * stages_of(p); i++) {
        int first = p->place[i], end = first + p->width[i % stages_of(p)], k = 0;
        while (p->track_first[k] < first)
            k++;
        seat[i] = k;
        for (width[i] = 0; k < p->tracks && p->track_first[k] < end; k++)
            width[i]++;
    }
}

meg_status meg_plan_places(meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    MEG_CHECK(e, o->stages % o->chunks == 0, MEG_EARG,
              "stages=%" PRId64 " is no multiple of chunks=%" PRId64 ": use stages=%" PRId64,
              o->stages, o->chunks, (o->stages / o->chunks + 1) * o->chunks);
    MEG_TRY(e, place_stages(p, e));
    MEG_TRY(e, find_rank(p, e));
    find_tracks(p);
    meg_plan_seat(p, p->world.rank);
    return MEG_OK;
}

/* ---- ranks of a stage ---- */

const meg_mesh *meg_plan_mesh(const meg_plan *p, int direction, const meg_segment *s)
{
    int dim[MEG_MESH_AXES], size = p->replicas * s->size;
    int first = *place_of(p, direction, s->stage);
    int *rank = meg_pool_alloc(p->pool, (size_t)size * sizeof *rank);
    for (int a = 0; a < MEG_AXES; a++)
        dim[a] = s->dim[a] * (a == MEG_N ? p->replicas : 1); /* n, the first axis, counts them */
    dim[MEG_AXES] = 1;
    for (int i = 0; i < size; i++)
        rank[i] = i / s->size * p->each + first + i % s->size;
    return meg_mesh_new(p->pool, dim, rank);
}

static int local_of(const meg_plan *p, int direction, int stage, int rank)
{
    return rank % p->each - *place_of(p, direction, stage);
}

bool meg_plan_sits(const meg_plan *p, int direction, int stage, int rank)
{
    int local = local_of(p, direction, stage, rank);
    return local >= 0 && local < p->width[stage];
}
