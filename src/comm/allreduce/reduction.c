/* Reductions under way: see reduction.h. */
#include "comm/allreduce/reduction.h"

#include <assert.h>
#include <string.h>

enum {
    WINDOW = MEG_REDUCTION_WINDOW
};

/* ---- pieces ---- */

static int64_t piece_elements(int64_t piece, meg_number type)
{
    int64_t elements = (piece > 0 ? piece : MEG_REDUCTION_PIECE) / meg_number_bytes(type);
    return elements > 0 ? elements : 1;
}

static int64_t pieces(const meg_reduction *r, const meg_range *s)
{
    int64_t each = piece_elements(r->spec.piece, r->spec.data.type);
    return (s->count + each - 1) / each;
}

/* Piece i of a span, in elements. */
static meg_range piece(const meg_reduction *r, const meg_range *s, int64_t i)
{
    int64_t each = piece_elements(r->spec.piece, r->spec.data.type), left = s->count - i * each;
    return (meg_range){s->at + i * each, left < each ? left : each};
}

static char *element(const meg_reduction *r, int64_t i)
{
    return (char *)r->spec.data.data + i * meg_number_bytes(r->spec.data.type);
}

static char *scratch_of(const meg_reduction *r, int64_t i)
{
    const meg_number type = r->spec.data.type;
    int64_t each = piece_elements(r->spec.piece, type) * meg_number_bytes(type);
    return (char *)r->spec.scratch + i % WINDOW * each;
}

int64_t meg_reduction_scratch(const meg_allreduce_kind *algorithm, const meg_allreduce *a,
                              meg_number type, int64_t piece_bytes)
{
    int64_t most = 0, limit = WINDOW * piece_elements(piece_bytes, type);
    meg_allreduce_step s;
    if (!algorithm->step) return 0;
    for (int k = 0; most < limit && algorithm->step(a, k, &s); k++)
        if (s.from >= 0 && s.add && s.recv.count > most) most = s.recv.count;
    return (most < limit ? most : limit) * meg_number_bytes(type);
}

/* ---- starting ---- */

static int place_of(const meg_reduction_spec *s, int rank)
{
    if (!s->rank) return rank;
    for (int i = 0; i < s->ranks; i++)
        if (s->rank[i] == rank) return i;
    return -1;
}

static meg_status check(const meg_comm *c, meg_error *e, const meg_reduction_spec *s)
{
    int size = meg_comm_size(c), rank = meg_comm_rank(c);
    MEG_CHECK(e, s->ranks >= 1 && s->ranks <= size && (s->rank || s->ranks == size), MEG_EARG,
              "a reduction over %d of %d ranks", s->ranks, size);
    MEG_CHECK(e, place_of(s, rank) >= 0, MEG_EARG,
              "rank %d started a reduction of a group that it is not in", rank);
    MEG_CHECK(e, s->algorithm->step || s->ranks == size, MEG_EARG,
              "allreduce '%s' works on all ranks of a communicator, but the group has %d of %d: "
              "split the communicator, or use another algorithm",
              s->algorithm->name, s->ranks, size);
    MEG_CHECK(e, s->groups || s->algorithm != &meg_allreduce_hierarchical, MEG_EARG,
              "allreduce 'hierarchical' must know which ranks share a node: give it groups");
    assert(!s->groups || s->groups->ranks == s->ranks);
    return MEG_OK;
}

meg_status meg_reduction_start(meg_reduction *r, meg_comm *c, meg_error *e,
                               const meg_reduction_spec *spec)
{
    MEG_TRY(e, check(c, e, spec));
    *r = (meg_reduction){.spec = *spec, .comm = c};
    r->view = (meg_allreduce){
        .ranks = spec->ranks,
        .rank = place_of(spec, meg_comm_rank(c)),
        .count = spec->data.count,
        .groups = spec->groups,
        .rows = spec->rows,
    };
    if (spec->algorithm->step) return MEG_OK;
    return meg_comm_allreduce_native(c, e, &spec->data, spec->combine, &r->native);
}

/* ---- going on ---- */

static bool begin_step(meg_reduction *r)
{
    if (!r->spec.algorithm->step || !r->spec.algorithm->step(&r->view, r->k, &r->now)) return false;
    memset(&r->out, 0, sizeof r->out);
    memset(&r->in, 0, sizeof r->in);
    if (r->now.to >= 0) r->out.count = pieces(r, &r->now.send);
    if (r->now.from >= 0) r->in.count = pieces(r, &r->now.recv);
    r->k++;
    r->in_step = true;
    return true;
}

static int peer(const meg_reduction *r, int place)
{
    return r->spec.rank ? r->spec.rank[place] : place;
}

/* Keeps the window full. */
static meg_status post(meg_reduction *r, meg_error *e)
{
    int64_t bytes = meg_number_bytes(r->spec.data.type);
    for (; r->in.posted < r->in.count && r->in.posted - r->in.done < WINDOW; r->in.posted++) {
        meg_range s = piece(r, &r->now.recv, r->in.posted);
        char *to = r->now.add ? scratch_of(r, r->in.posted) : element(r, s.at);
        MEG_TRY(e, meg_comm_recv(r->comm, e, peer(r, r->now.from), r->spec.tag, to, s.count * bytes,
                                 &r->in.message[r->in.posted % WINDOW]));
    }
    for (; r->out.posted < r->out.count && r->out.posted - r->out.done < WINDOW; r->out.posted++) {
        meg_range s = piece(r, &r->now.send, r->out.posted);
        MEG_TRY(e, meg_comm_send(r->comm, e, peer(r, r->now.to), r->spec.tag, element(r, s.at),
                                 s.count * bytes, &r->out.message[r->out.posted % WINDOW]));
    }
    return MEG_OK;
}

/* Takes what has come, in order; *took pieces. */
static meg_status collect(meg_reduction *r, meg_error *e, int *took)
{
    bool done = true;
    while (done && r->out.done < r->out.posted) {
        MEG_TRY(e, meg_comm_test(r->comm, e, &r->out.message[r->out.done % WINDOW], &done));
        r->out.done += done;
    }
    done = true;
    while (r->in.done < r->in.posted) {
        MEG_TRY(e, meg_comm_test(r->comm, e, &r->in.message[r->in.done % WINDOW], &done));
        if (!done) break;
        meg_range s = piece(r, &r->now.recv, r->in.done);
        if (r->now.add)
            meg_numbers_combine(r->spec.combine, r->spec.data.type, element(r, s.at),
                                scratch_of(r, r->in.done), s.count);
        r->in.done++;
        ++*took;
    }
    return MEG_OK;
}

meg_status meg_reduction_advance(meg_reduction *r, meg_error *e, bool *done)
{
    *done = false;
    if (r->native) {
        MEG_TRY(e, meg_comm_test(r->comm, e, &r->native, done));
        return MEG_OK;
    }
    for (int took = 0; took < WINDOW;) {
        if (!r->in_step && !begin_step(r)) {
            *done = true;
            return MEG_OK;
        }
        int64_t before = r->out.done + r->in.done;
        MEG_TRY(e, post(r, e));
        MEG_TRY(e, collect(r, e, &took));
        r->in_step = r->out.done < r->out.count || r->in.done < r->in.count;
        if (r->in_step && before == r->out.done + r->in.done) return MEG_OK;
    }
    meg_comm_wake(r->comm); /* there may be more at once */
    return MEG_OK;
}

void meg_reduction_drop(meg_reduction *r)
{
    meg_comm_drop(r->comm, &r->native);
    for (int i = 0; i < WINDOW; i++) {
        meg_comm_drop(r->comm, &r->in.message[i]);
        meg_comm_drop(r->comm, &r->out.message[i]);
    }
}

meg_status meg_reduction_run(meg_comm *c, meg_error *e, const meg_reduction_spec *spec)
{
    meg_reduction r;
    bool done;
    MEG_TRY(e, meg_reduction_start(&r, c, e, spec));
    for (;;) {
        MEG_TRY(e, meg_reduction_advance(&r, e, &done));
        if (done) return MEG_OK;
        MEG_TRY(e, meg_comm_sleep(c, e, 1));
    }
}
