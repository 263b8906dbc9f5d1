/* The proof by classes: see proof.h. A *cursor* is a rank of the first replica of a kind. */
#include "plan/proof.h"
#include "base/random.h"
#include "plan/digest.h"
#include "plan/distribute/distribute.h"
#include "plan/events/rehearsal.h"
#include "plan/program/tags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- witnesses ---- */

meg_proof *meg_proof_new(const meg_classes *c)
{
    meg_pool *pool = meg_pool_new();
    meg_proof *q = meg_pool_alloc(pool, sizeof *q);
    *q = (meg_proof){.pool = pool, .classes = c};
    for (int i = 0; i < MEG_ENTRIES; i++)
        q->witness[i] = meg_pool_alloc(pool, (size_t)c->count * sizeof *q->witness[i]);
    return q;
}

void meg_proof_add(meg_proof *q, const meg_plan *p)
{
    for (int i = 0; i < MEG_ENTRIES; i++) {
        const meg_entry *e = &p->entry[i];
        meg_witness *w = &q->witness[i][q->classes->of[p->world.rank]];
        if (e->batch == 0 || w->list.note) continue;
        meg_events v;
        meg_events_of(p, i, &v);
        w->teams = e->teams;
        w->team = meg_pool_alloc(q->pool, ((size_t)e->teams + 1) * sizeof *w->team);
        for (int k = 0; k < e->teams; k++) {
            w->team[k] = e->team[k];
            w->team[k].rank = NULL; /* those of another rank, and gone with its plan */
        }
        meg_proof_keep(q, i, q->classes->of[p->world.rank], &v);
        meg_events_clear(&v);
    }
}

void meg_proof_keep(meg_proof *q, int entry, int class, const meg_events *v)
{
    meg_witness *w = &q->witness[entry][class];
    w->order = meg_digest_order(v, w->teams, w->team);
    for (int k = 0; k < q->classes->count; k++) {
        const meg_witness *o = &q->witness[entry][k];
        if (k == class || !o->list.note || o->shared || o->order != w->order) continue;
        w->list = o->list;
        w->shared = true;
        return;
    }
    meg_packed_make(v, &w->list);
}

void meg_proof_free(meg_proof *q)
{
    if (!q) return;
    for (int i = 0; i < MEG_ENTRIES; i++)
        for (int k = 0; k < q->classes->count; k++)
            if (!q->witness[i][k].shared) meg_packed_clear(&q->witness[i][k].list);
    meg_pool_free(q->pool);
}

/* ---- what is looked up ---- */

typedef struct pair { /* of a key and what was found under it */
    uint64_t key;     /* 0: free */
    int value;
} pair;

typedef struct table {  /* empty: all zero */
    size_t count, room; /* a power of two; or 0 */
    pair *at;
} table;

static pair *table_place(const table *t, uint64_t key)
{
    size_t i = key & (t->room - 1);
    while (t->at[i].key && t->at[i].key != key)
        i = (i + 1) & (t->room - 1);
    return &t->at[i];
}

static void table_enlarge(table *t)
{
    table more = {t->count, t->room ? 2 * t->room : 64, NULL};
    more.at = calloc(more.room, sizeof *more.at);
    if (!more.at) abort();
    for (size_t i = 0; i < t->room; i++)
        if (t->at[i].key) *table_place(&more, t->at[i].key) = t->at[i];
    free(t->at);
    *t = more;
}

/* The value under a key; -1 if there was none, and now it is `value`. */
static int table_put(table *t, uint64_t key, int value)
{
    if (key == 0) key = 1;
    if (2 * t->count >= t->room) table_enlarge(t);
    pair *p = table_place(t, key);
    if (p->key) return p->value;
    *p = (pair){key, value};
    t->count++;
    return -1;
}

/* ---- the job ---- */

typedef struct party { /* who takes part in a sum */
    uint64_t key;
    int locals; /* ranks within a replica */
    bool all;   /* of all replicas */
    int last;   /* the cursor's last sum with it, + 1: a meeting; 0: none yet */
} party;

typedef struct meeting { /* of those that sum */
    int note, count;     /* the first that came, and how many did */
    int tag, nth;        /* which one it is of its ranks' */
    int next; /* the one that its first rank had next with the same party, + 1; 0: none */
    int how, micro, peer;
    int64_t bytes;
    uint64_t like; /* of its notes: see events.h */
} meeting;

typedef struct course { /* of a message, by cursors */
    int exchange, direction, from, to;
} course;

typedef struct peers { /* of a cursor: an exchange's messages, in their order */
    int *first;        /* (exchanges, directions, cursors + 1) */
    int *link;         /* of each its message's number, the same at both ends */
} peers;

typedef struct job {
    const meg_proof *q;
    const meg_classes *c;
    const meg_plan *p;
    const meg_entry *e;
    meg_error *error;
    meg_pool *pool;
    int kinds;    /* of replicas, */
    int *kind;    /* (replicas) */
    int *replica; /* (kinds) and the first of each: those of the classes, but fewer */
    int cursors, exchanges, links, tags;
    const meg_witness **witness; /* (cursors) */
    bool *idle;                  /* (kinds) */
    course *course;              /* (links) */
    size_t course_room;
    peers to, from; /* whom values go to; whom they come from */
    meg_rehearsal run;
    meeting *met; /* (meetings) */
    size_t met_room;
    int *seen;      /* (tags, 2) how many of the cursor's messages had this tag */
    int *waiting;   /* (2 * micro-batches, links) the note of the side that came first, + 1 */
    table meetings; /* by party, tag and which one of this tag it is */
} job;

static int rank_of(const job *j, int cursor)
{
    int each = j->p->each;
    return j->replica[cursor / each] * each + cursor % each;
}

static int cursor_of(const job *j, int rank)
{
    return j->kind[rank / j->p->each] * j->p->each + rank % j->p->each;
}

static const char *name_of(const job *j, const meg_traffic_note *n)
{
    bool one = n->value >= 0 && n->value < j->e->graph->values;
    return one ? j->e->graph->value[n->value].name : "gradients";
}

static meg_traffic_note note_at(const job *j, int note, int *cursor)
{
    int lo = 0, hi = j->cursors;
    while (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        if (j->run.first[middle] <= note) lo = middle;
        else hi = middle;
    }
    while (j->run.first[lo + 1] <= note)
        lo++;
    *cursor = lo;
    return meg_packed_at(j->run.list[lo], note - j->run.first[lo]);
}

/* ---- whom messages go to ---- */

/* What stays on the rank, within a stage, is no message. */
static bool travels(const job *j, int value, const meg_parcel *m)
{
    const meg_entry *e = j->e;
    const meg_node *v = &e->graph->node[e->graph->value[value].maker];
    if (m->from != m->to || !meg_is_move(v)) return true;
    return e->stage[v->id] != e->stage[e->graph->value[v->in[0]].maker];
}

static int *seat(const job *j, const peers *p, int exchange, int direction, int cursor)
{
    return &p->first[((size_t)(exchange * MEG_WAYS + direction)) * ((size_t)j->cursors + 1) +
                     (size_t)cursor];
}

typedef struct exchange {
    int value, number, direction;
} exchange;

/* Adds the messages of one exchange, and counts those to and from each cursor. */
static void list_peers(job *j, exchange x)
{
    const meg_entry *e = j->e;
    int size = e->segment[e->segment_of[e->graph->value[x.value].maker]].size;
    meg_pool *pool = meg_pool_new();
    for (int k = 0; k < j->kinds; k++) {
        int replica = j->replica[k];
        meg_positions to = {.first = replica * size, .end = (replica + 1) * size};
        meg_transfer t = meg_entry_transfer(pool, e, x.value, x.direction, to);
        for (int64_t i = 0; i < t.messages; i++) {
            const meg_parcel *m = &t.message[i];
            int from = cursor_of(j, m->from), there = cursor_of(j, m->to);
            if (!travels(j, x.value, m)) continue;
            ++*seat(j, &j->to, x.number, x.direction, from + 1);
            ++*seat(j, &j->from, x.number, x.direction, there + 1);
            size_t all = (size_t)j->links + 1;
            j->course = meg_grow(j->course, &j->course_room, all, sizeof *j->course);
            j->course[j->links++] = (course){x.number, x.direction, from, there};
        }
    }
    meg_pool_free(pool);
}

static void list_all_peers(job *j)
{
    for (int i = 0; i < j->e->graph->values; i++)
        for (int d = 0; d < j->e->timetable->directions; d++)
            if (j->e->exchange_number[i] >= 0)
                list_peers(j, (exchange){i, j->e->exchange_number[i], d});
}

static void link_peers(job *j)
{
    for (int i = 0; i < j->links; i++) {
        const course *c = &j->course[i];
        j->to.link[(*seat(j, &j->to, c->exchange, c->direction, c->from))++] = i;
        j->from.link[(*seat(j, &j->from, c->exchange, c->direction, c->to))++] = i;
    }
}

/* Counts become firsts; after writing, each first has become the next one's, and is moved back. */
static int add_up(peers *p, size_t seats)
{
    for (size_t i = 1; i < seats; i++)
        p->first[i] += p->first[i - 1];
    return p->first[seats - 1];
}

static void find_peers(job *j)
{
    for (int i = 0; i < j->e->graph->values; i++)
        if (j->e->exchange_number[i] >= j->exchanges) j->exchanges = j->e->exchange_number[i] + 1;
    size_t seats = (size_t)j->exchanges * MEG_WAYS * ((size_t)j->cursors + 1) + 1;
    peers *both[2] = {&j->to, &j->from};
    for (int i = 0; i < 2; i++)
        both[i]->first = meg_pool_alloc(j->pool, seats * sizeof(int));
    list_all_peers(j);
    for (int i = 0; i < 2; i++) {
        size_t all = (size_t)add_up(both[i], seats) + 1;
        both[i]->link = meg_pool_alloc(j->pool, all * sizeof(int));
    }
    link_peers(j);
    for (int i = 0; i < 2; i++) {
        memmove(both[i]->first + 1, both[i]->first, (seats - 1) * sizeof(int));
        both[i]->first[0] = 0;
    }
    size_t waiting = 2 * (size_t)j->e->micro * (size_t)j->links + 1;
    j->waiting = meg_pool_alloc(j->pool, waiting * sizeof(int));
}

/* ---- messages ---- */

/* Where the side of a message that comes first waits for the other: the tag tells exchange, micro-batch and
 * pass, and messages of one tag go in the layouts' order. NULL: the layouts know of no such message. */
static int *meeting_place(job *j, int cursor, const meg_traffic_note *n)
{
    const meg_entry *e = j->e;
    int at = n->tag - meg_tag_of_exchange(e, 0), run = at % (2 * e->micro);
    int number = at / (2 * e->micro);
    bool back = run >= e->micro, sends = n->code == MEG_SEND;
    const peers *p = sends != back ? &j->to : &j->from;
    if (at < 0 || number >= j->exchanges) return NULL;
    const int *first = seat(j, p, number, e->timetable->direction[run % e->micro], cursor);
    int mine = first[0] + j->seen[2 * n->tag + sends]++;
    if (mine >= first[1]) return NULL;
    return &j->waiting[(size_t)run * (size_t)j->links + (size_t)p->link[mine]];
}

static meg_status lonely(const job *j, int cursor, const meg_traffic_note *n)
{
    bool send = n->code == MEG_SEND;
    return meg_fail(
        j->error, MEG_EARG,
        "the plan is broken: rank %d %s %s of micro-batch %d %s another, which does not %s it",
        rank_of(j, cursor), send ? "sends" : "expects", name_of(j, n), n->micro,
        send ? "to" : "from", send ? "expect" : "send");
}

static meg_status match_message(job *j, int cursor, int number, const meg_traffic_note *n)
{
    int note = j->run.first[cursor] + number, there;
    int *place = meeting_place(j, cursor, n);
    if (!place) return lonely(j, cursor, n);
    if (!*place) {
        *place = note + 1;
        return MEG_OK;
    }
    int partner = *place - 1;
    meg_traffic_note o = note_at(j, partner, &there);
    if (o.code == n->code || j->run.partner[partner] >= 0) return lonely(j, cursor, n);
    MEG_CHECK(j->error, o.bytes == n->bytes && o.like == n->like, MEG_EARG,
              "the plan is broken: ranks %d and %d exchange %s of micro-batch %d with %" PRId64
              " and %" PRId64 " bytes, or in another order",
              rank_of(j, cursor), rank_of(j, there), name_of(j, n), n->micro, n->bytes, o.bytes);
    j->run.partner[note] = partner;
    j->run.partner[partner] = note;
    return MEG_OK;
}

/* ---- sums ---- */

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* Adds the ranks within a replica that differ from a position along axes of its mesh. */
static int along_axes(const job *j, const meg_mesh *mesh, const meg_team *t, int position, int *out)
{
    const meg_segment *s = &j->e->segment[t->segment];
    int count = 0, replica = position / s->size, own = position % s->size;
    for (int i = 0; i < s->size; i++) {
        bool in = true;
        for (int a = MEG_AXES - 1, stride = 1; a >= 0; stride *= s->dim[a--])
            in = in && (t->axes & 1 << a || i / stride % s->dim[a] == own / stride % s->dim[a]);
        if (in) out[count++] = mesh->rank[replica * s->size + i] % j->p->each;
    }
    return count;
}

static int along_mesh(const job *j, const meg_team *t, int rank, int *out)
{
    int count = 0, directions = j->e->timetable->directions, position = -1;
    for (int d = 0; d < directions && position < 0; d++)
        if (t->way == MEG_WAYS || t->way == d)
            position = meg_mesh_find(meg_entry_mesh(j->e, d, t->segment), rank);
    for (int d = 0; d < directions && position >= 0; d++)
        if (t->way == MEG_WAYS || t->way == d)
            count += along_axes(j, meg_entry_mesh(j->e, d, t->segment), t, position, out + count);
    return count;
}

static int with_weight(const job *j, const meg_team *t, int local, int *out)
{
    meg_box *box = calloc((size_t)j->p->each, sizeof *box);
    int count = 0;
    if (!box) abort();
    meg_entry_weight(j->p, j->e, t->value, box);
    for (int i = 0; i < j->p->each; i++)
        if (!meg_box_empty(&box[i]) && meg_box_equal(&box[i], &box[local])) out[count++] = i;
    free(box);
    return count;
}

/* A rank without samples is lowered like one of the last replica. */
static party party_of(const job *j, int cursor, const meg_team *t)
{
    int kind = cursor / j->p->each, local = cursor % j->p->each, kept = 0;
    int replica = j->idle[kind] ? j->p->replicas - 1 : j->replica[kind];
    int *list = calloc((size_t)(MEG_WAYS * j->p->each), sizeof *list);
    if (!list) abort();
    int count = t->segment < 0 ? with_weight(j, t, local, list)
                               : along_mesh(j, t, replica * j->p->each + local, list);
    party y = {.all = t->segment < 0 || t->axes & 1 << MEG_N || j->p->replicas == 1};
    qsort(list, (size_t)count, sizeof *list, by_number);
    y.key = meg_hash_word(meg_hash("party"), y.all ? 0 : 1 + (uint64_t)j->kind[replica]);
    for (int i = 0; i < count; i++) {
        if (i > 0 && list[i] == list[i - 1]) continue;
        y.key = meg_hash_word(y.key, (uint64_t)list[i]);
        kept++;
    }
    free(list);
    y.locals = kept;
    return y;
}

static meg_status summed_unlike(const job *j, int cursor, const meg_traffic_note *n, int other)
{
    return meg_fail(
        j->error, MEG_EARG,
        "the plan is broken: ranks %d and %d shall sum up %s of micro-batch %d, but have "
        "other elements, micro-batches or ways to sum",
        rank_of(j, cursor), rank_of(j, other), name_of(j, n), n->micro);
}

/* Where a sum meets those of the others. Ranks that sum together mostly do it in one order: then it is the one that
 * follows the last. A new one, of which this is the first: its number is that of all so far. */
static int meeting_of(job *j, const meg_traffic_note *n, party *y)
{
    int nth = j->seen[2 * n->tag]++, all = j->run.meetings;
    int next = y->last ? j->met[y->last - 1].next : 0;
    if (next && j->met[next - 1].tag == n->tag && j->met[next - 1].nth == nth) return next - 1;
    uint64_t key = meg_hash_word(meg_hash_word(y->key, (uint64_t)n->tag), (uint64_t)nth);
    int known = table_put(&j->meetings, meg_hash_mix(key), all);
    if (known >= 0) return known;
    if (y->last) j->met[y->last - 1].next = all + 1;
    j->met = meg_grow(j->met, &j->met_room, (size_t)all + 1, sizeof *j->met);
    j->met[all] = (meeting){.tag = n->tag,
                            .nth = nth,
                            .how = n->how,
                            .micro = n->micro,
                            .peer = n->peer,
                            .bytes = n->bytes,
                            .like = n->like};
    return all;
}

static meg_status match_sum(job *j, int cursor, int number, const meg_traffic_note *n, party *y)
{
    int note = j->run.first[cursor] + number, other;
    int members = y->locals * (y->all ? j->p->replicas : 1);
    MEG_CHECK(j->error, members == n->peer, MEG_EARG,
              "the plan is broken: rank %d sums up %s of micro-batch %d with %d ranks, but %d have "
              "shares of it",
              rank_of(j, cursor), name_of(j, n), n->micro, n->peer, members);
    int where = meeting_of(j, n, y);
    meeting *m = &j->met[where];
    y->last = where + 1;
    if (where == j->run.meetings) {
        m->note = note;
        j->run.expected[j->run.meetings++] = y->locals * (y->all ? j->kinds : 1);
    }
    bool same = m->how == n->how && m->micro == n->micro && m->bytes == n->bytes &&
                m->like == n->like && m->peer == n->peer;
    if (!same) {
        note_at(j, m->note, &other);
        return summed_unlike(j, cursor, n, other);
    }
    j->run.partner[note] = where;
    m->count++;
    return MEG_OK;
}

/* ---- the check ---- */

static meg_status match_cursor(job *j, int cursor)
{
    const meg_witness *w = j->witness[cursor];
    const meg_packed *v = &w->list;
    party *parties = calloc((size_t)w->teams + 1, sizeof *parties);
    meg_status status = MEG_OK;
    if (!parties) abort();
    for (int i = 0; i < w->teams; i++)
        parties[i] = party_of(j, cursor, &w->team[i]);
    memset(j->seen, 0, 2 * (size_t)j->tags * sizeof *j->seen);
    for (int i = 0; i < v->notes && status == MEG_OK; i++) {
        meg_traffic_note n = meg_packed_at(v, i);
        status = n.code == MEG_REDUCE ? match_sum(j, cursor, i, &n, &parties[n.party])
                                      : match_message(j, cursor, i, &n);
    }
    free(parties);
    return status;
}

/* Has everything its other side? */
static meg_status check_matched(const job *j)
{
    int cursor;
    for (int i = 0; i < j->run.first[j->cursors]; i++)
        if (j->run.partner[i] < 0) {
            meg_traffic_note n = note_at(j, i, &cursor);
            return lonely(j, cursor, &n);
        }
    for (int i = 0; i < j->run.meetings; i++) {
        if (j->met[i].count == j->run.expected[i]) continue;
        meg_traffic_note n = note_at(j, j->met[i].note, &cursor);
        return meg_fail(
            j->error, MEG_EARG,
            "the plan is broken: %d ranks shall sum up %s of micro-batch %d, but not all "
            "do, among them rank %d",
            n.peer, name_of(j, &n), n.micro, rank_of(j, cursor));
    }
    return MEG_OK;
}

static meg_status check_run(const job *j)
{
    int at, cursor = meg_rehearsal_stuck(&j->run, &at);
    if (cursor < 0) return MEG_OK;
    const meg_packed *v = j->run.list[cursor];
    meg_traffic_note n = meg_packed_at(v, -1 - v->step[at]);
    return meg_stuck(j->error, name_of(j, &n), rank_of(j, cursor), &n);
}

/* Do two kinds of replicas cut samples alike, and does each rank have the list of the other's? */
static bool same_lists(const job *j, int entry, int a, int b)
{
    const meg_classes *c = j->c;
    const meg_witness *w = j->q->witness[entry];
    int each = j->p->each;
    bool same = c->apart[entry] && c->samples[a] == c->samples[b];
    for (int i = 0; i < each && same; i++)
        same = w[c->of[c->replica[a] * each + i]].list.note ==
               w[c->of[c->replica[b] * each + i]].list.note;
    return same;
}

static void merge_kinds(job *j, int entry)
{
    const meg_classes *c = j->c;
    size_t kinds = (size_t)c->kinds, replicas = (size_t)j->p->replicas;
    int *first = meg_pool_alloc(j->pool, kinds * sizeof *first);
    int *as = meg_pool_alloc(j->pool, kinds * sizeof *as);
    j->replica = meg_pool_alloc(j->pool, kinds * sizeof *j->replica);
    j->kind = meg_pool_alloc(j->pool, replicas * sizeof *j->kind);
    for (int k = 0; k < c->kinds; k++) {
        while (as[k] < j->kinds && !same_lists(j, entry, first[as[k]], k))
            as[k]++;
        if (as[k] < j->kinds) continue;
        first[j->kinds] = k;
        j->replica[j->kinds++] = c->replica[k];
    }
    for (size_t r = 0; r < replicas; r++)
        j->kind[r] = as[c->kind[r]];
    j->cursors = j->kinds * j->p->each;
}

static void make_room(job *j, int entry)
{
    size_t cursors = (size_t)j->cursors + 1;
    j->witness = meg_pool_alloc(j->pool, cursors * sizeof *j->witness);
    j->run.lists = j->cursors;
    j->run.list = meg_pool_alloc(j->pool, cursors * sizeof *j->run.list);
    j->run.first = meg_pool_alloc(j->pool, cursors * sizeof *j->run.first);
    for (int i = 0; i < j->cursors; i++) {
        const meg_witness *w = &j->q->witness[entry][j->c->of[rank_of(j, i)]];
        j->witness[i] = w;
        j->run.list[i] = &w->list;
        j->run.first[i + 1] = j->run.first[i] + w->list.notes;
        for (int k = 0; k < w->list.kinds; k++)
            if (w->list.kind[k].tag + j->e->micro >= j->tags)
                j->tags = w->list.kind[k].tag + j->e->micro + 1;
    }
    size_t notes = (size_t)j->run.first[j->cursors] + 1;
    j->run.partner = meg_pool_alloc(j->pool, notes * sizeof(int));
    memset(j->run.partner, 0xff, notes * sizeof(int)); /* -1: none */
    j->run.expected = meg_pool_alloc(j->pool, notes * sizeof(int));
    j->seen = meg_pool_alloc(j->pool, 2 * ((size_t)j->tags + 1) * sizeof(int));
}

static meg_status check_entry(job *j, int entry)
{
    const int64_t *at = meg_plan_samples(j->p, j->e->batch / j->e->micro, j->p->replicas);
    merge_kinds(j, entry);
    j->idle = meg_pool_alloc(j->pool, (size_t)j->kinds * sizeof *j->idle);
    for (int k = 0; k < j->kinds; k++)
        j->idle[k] = at[j->replica[k]] == at[j->replica[k] + 1];
    make_room(j, entry);
    find_peers(j);
    for (int i = 0; i < j->cursors; i++)
        MEG_TRY(j->error, match_cursor(j, i));
    MEG_TRY(j->error, check_matched(j));
    return check_run(j);
}

meg_status meg_proof_check(const meg_proof *q, meg_error *e, const meg_plan *p)
{
    for (int i = 0; i < MEG_ENTRIES; i++) {
        if (p->entry[i].batch == 0) continue;
        job j = {
            .q = q, .c = q->classes, .p = p, .e = &p->entry[i], .error = e, .pool = meg_pool_new()};
        meg_status status = check_entry(&j, i);
        free(j.meetings.at);
        free(j.met);
        free(j.course);
        meg_pool_free(j.pool);
        if (status != MEG_OK) return status;
    }
    return MEG_OK;
}
