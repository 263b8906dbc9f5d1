/* Class labels: see labels.h. */
#include "data/labels.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- maps ---- */

static bool scan(const char **at, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    if (end == *at || (*at)[0] == ' ' || errno) return false;
    *out = value;
    *at = end;
    return true;
}

/* "0:0" or "1..10:0" */
static bool scan_range(const char **at, meg_label_rule *r)
{
    int64_t first, last, to;
    if (r->ranges == MEG_LABEL_RANGES || !scan(at, &first)) return false;
    last = first;
    if (strncmp(*at, "..", 2) == 0) {
        *at += 2;
        if (!scan(at, &last)) return false;
    }
    if (**at != ':' || !(++*at, scan(at, &to))) return false;
    if (last < first || last - first > INT32_MAX || to < -1 || to > INT32_MAX / 2) return false;
    r->range[r->ranges].first = first;
    r->range[r->ranges].last = last;
    r->range[r->ranges++].to = to;
    return true;
}

static int32_t look_up(const meg_label_rule *r, int64_t number)
{
    if (number == r->ignore) return MEG_LABEL_NONE;
    for (int i = 0; i < r->ranges; i++) {
        if (number < r->range[i].first || number > r->range[i].last) continue;
        int64_t to = r->range[i].to;
        if (to >= 0) to += number - r->range[i].first;
        return (int32_t)(to < r->classes ? to : MEG_LABEL_WRONG);
    }
    bool known = !r->ranges && 0 <= number && number < r->classes;
    return known ? (int32_t)number : MEG_LABEL_WRONG;
}

meg_status meg_label_rule_make(meg_error *e, const char *map, int64_t classes, int64_t ignore,
                               meg_label_rule *out)
{
    meg_label_rule r = {.classes = classes, .ignore = ignore};
    int64_t most = 0;
    for (const char *at = map; *at; at += *at == ',') {
        MEG_CHECK(e, scan_range(&at, &r) && (!*at || *at == ','), MEG_EARG,
                  "npy: map=%s is not understood near '%.20s': write it like 0:0,255:1 or 1..10:0 "
                  "(at most %d parts; -1: does not count)",
                  map, at, MEG_LABEL_RANGES);
        for (int i = 0; i < r.ranges - 1; i++)
            MEG_CHECK(e,
                      r.range[i].last < r.range[r.ranges - 1].first ||
                          r.range[i].first > r.range[r.ranges - 1].last,
                      MEG_EARG, "npy: map=%s says twice what %" PRId64 " is", map,
                      r.range[i].first > r.range[r.ranges - 1].first ? r.range[i].first
                                                                     : r.range[r.ranges - 1].first);
        int64_t to = r.range[r.ranges - 1].to,
                length = r.range[r.ranges - 1].last - r.range[r.ranges - 1].first;
        if (to >= 0 && to + length > most) most = to + length;
    }
    if (!classes) r.classes = r.ranges ? most + 1 : INT32_MAX;
    for (int i = 0; i < MEG_LABEL_SMALL; i++)
        r.small[i] = look_up(&r, i);
    *out = r;
    return MEG_OK;
}

int32_t meg_label_of(const meg_label_rule *r, int64_t number)
{
    if (0 <= number && number < MEG_LABEL_SMALL) return r->small[number];
    return look_up(r, number);
}

/* ---- what there is ---- */

void meg_label_tally_begin(meg_label_tally *t)
{
    memset(t, 0, sizeof *t);
    t->most = t->next = t->wrong_at = -1;
}

static void tally_class(meg_label_tally *t, int32_t class, int64_t at)
{
    if (class < MEG_LABEL_TALLIED) t->occurs[class] = true;
    if (class == t->most) t->most_count++;
    if (class<t->most &&class> t->next) t->next = class;
    if (class <= t->most) return;
    t->next = t->most;
    t->most = class;
    t->most_count = 1;
    t->most_at = at;
}

void meg_label_tally_add(meg_label_tally *t, const meg_label_rule *r, int64_t at, int64_t count,
                         const int64_t number[])
{
    t->seen += count;
    for (int64_t i = 0; i < count; i++) {
        int32_t class = meg_label_of(r, number[i]);
        if (class >= 0) tally_class(t, class, at + i);
        else if (class == MEG_LABEL_NONE) t->none++;
        else if (t->wrong_at < 0) t->wrong = number[i], t->wrong_at = at + i;
    }
}

/* ---- what looks wrong ---- */

enum {
    SPARSE = 4, /* of so many classes at most one occurs: they cannot be meant */
    FAR = 8,    /* classes between the largest and the next */
    RARE = 10,  /* at most one label of so many is an outlier */
    LISTED = 8  /* classes that a map is written out for */
};

static int distinct(const meg_label_tally *t)
{
    int count = t->most >= MEG_LABEL_TALLIED;
    for (int i = 0; i < MEG_LABEL_TALLIED; i++)
        count += t->occurs[i];
    return count;
}

static int lowest(const meg_label_tally *t)
{
    int i = 0;
    while (i < MEG_LABEL_TALLIED && !t->occurs[i])
        i++;
    return i;
}

/* "0:0,255:1": those that occur, in their order. */
static void write_map(const meg_label_tally *t, char *out, size_t size)
{
    int to = 0;
    out[0] = '\0';
    for (int i = 0; i < MEG_LABEL_TALLIED; i++)
        if (t->occurs[i]) {
            size_t used = strlen(out);
            snprintf(out + used, size - used, "%s%d:%d", to ? "," : "", i, to);
            to++;
        }
}

static void doubt_few(const meg_label_tally *t, const char *name, char *out)
{
    char map[128];
    int kinds = distinct(t);
    if (kinds <= LISTED && t->most < MEG_LABEL_TALLIED) {
        write_map(t, map, sizeof map);
        snprintf(out, MEG_FINDING,
                 "%.200s has %d different label%s up to %" PRId64 ", which would be %" PRId64
                 " classes: use map=%s, or classes=%" PRId64 " if there are so many",
                 name, kinds, kinds == 1 ? "" : "s", t->most, t->most + 1, map, t->most + 1);
        return;
    }
    snprintf(out, MEG_FINDING,
             "%.200s has %d different labels up to %" PRId64
             ", fewer than a quarter of the classes that there would be: say classes= how many "
             "there are, or map= which is which (map=100..199:0)",
             name, kinds, t->most);
}

static void doubt_far(const meg_label_tally *t, const char *name, char *out)
{
    snprintf(out, MEG_FINDING,
             "label %" PRId64 " of %.200s is %" PRId64 " (%" PRId64
             " such), the next smaller is %" PRId64 ": use ignore=%" PRId64
             " if it does not count, or classes=%" PRId64 " if it is right",
             t->most_at, name, t->most, t->most_count, t->next, t->most, t->most + 1);
}

void meg_label_judge(const meg_label_tally *t, const meg_label_rule *r, const char *name,
                     meg_dataset *d)
{
    meg_findings *f = &d->findings;
    if (t->none)
        snprintf(f->said[0], MEG_FINDING,
                 "%" PRId64 " of %" PRId64 " labels of %.200s do not count", t->none, t->seen,
                 name);
    if (t->most < 0 || r->ranges || d->tokens) return;
    int64_t classes = t->most + 1;
    int kinds = distinct(t), low = lowest(t);
    bool few = classes >= 2 * SPARSE && kinds <= classes / SPARSE;
    bool far = t->most - t->next > FAR && classes > 2 * (t->next + 1) && kinds > 2 &&
               t->most_count <= (t->seen - t->none) / RARE;
    if (low == 1 && kinds > 1 && !few && !far)
        snprintf(f->said[1], MEG_FINDING,
                 "labels of %.200s start at 1, so that class 0 never occurs: map=1..%" PRId64
                 ":0 counts from 0",
                 name, t->most);
    if (r->classes != INT32_MAX) return; /* the user said how many */
    if (far) doubt_far(t, name, f->classes);
    else if (few) doubt_few(t, name, f->classes);
}
