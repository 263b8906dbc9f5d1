/* The book of prices: see prices.h. Lists are kept in the order of their texts and searched by halves.
 */
#include "machine/prices.h"
#include "base/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NEAR = 1 << 20; /* bytes that a core's cache holds: the second level's */
static const double FAR = 16 << 20; /* that the package's holds: some third of what is sold today */

static const double MODEL_COUNTS = 0.25; /* as much as a quarter of a kernel of the same size */
static const double FARTHEST = 3;        /* times more or less than the model */
static const double REMEMBERED = 20;     /* seconds that earlier measurements count, at most */

struct meg_prices {
    meg_prices_head head;
    meg_pool *pool; /* texts */
    int prices, models, links;
    size_t price_room, model_room, link_room;
    meg_price *price;
    meg_price_model *model;
    const char **link;
};

const meg_prices *meg_prices_builtin(void)
{
    static const meg_prices book = {
        .head = {.threads = 1,
                 .ranks = 1,
                 .isa = "builtin",
                 .rates = {5e10, 1e9, 1e10, 2e-6, 5e-5, 0, 0, 0, 0, 0}}};
    return &book;
}

meg_prices *meg_prices_new(const meg_prices_head *head)
{
    meg_pool *pool = meg_pool_new();
    meg_prices *p = meg_pool_alloc(pool, sizeof *p);
    p->head = *head;
    p->pool = pool;
    return p;
}

void meg_prices_free(meg_prices *p)
{
    if (!p) return;
    free(p->price);
    free(p->model);
    free((void *)p->link);
    meg_pool_free(p->pool);
}

const meg_prices_head *meg_prices_head_of(const meg_prices *p)
{
    return &p->head;
}

/* ---- the lists ---- */

/* Elements begin with their text. The first that is not before `text`. */
static int place_of(const void *list, int count, size_t element, const char *text)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const char *const *at = (const void *)((const char *)list + (size_t)middle * element);
        if (strcmp(*at, text) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_there(const void *list, int count, size_t element, int at, const char *text)
{
    const char *const *found = (const void *)((const char *)list + (size_t)at * element);
    return at < count && strcmp(*found, text) == 0;
}

void meg_prices_add(meg_prices *p, const meg_price *one)
{
    const char *key = one->key;
    int at = place_of(p->price, p->prices, sizeof *p->price, key);
    if (!is_there(p->price, p->prices, sizeof *p->price, at, key)) {
        p->price = meg_grow(p->price, &p->price_room, (size_t)p->prices + 1, sizeof *p->price);
        memmove(p->price + at + 1, p->price + at, (size_t)(p->prices - at) * sizeof *p->price);
        p->price[at].key = meg_pool_text(p->pool, "%s", key);
        p->prices++;
    }
    key = p->price[at].key;
    p->price[at] = *one;
    p->price[at].key = key;
}

void meg_prices_again(meg_prices *p, const meg_price *one)
{
    const meg_price *old = meg_prices_find(p, one->key);
    meg_price both = *one;
    double before = old ? fmin(old->seen, REMEMBERED) : 0;
    if (before > 0 && one->seen > 0) {
        both.seen = before + one->seen;
        both.seconds = (before * old->seconds + one->seen * one->seconds) / both.seen;
    }
    meg_prices_add(p, &both);
}

void meg_prices_add_model(meg_prices *p, const meg_price_model *m)
{
    int at = place_of(p->model, p->models, sizeof *p->model, m->family);
    if (!is_there(p->model, p->models, sizeof *p->model, at, m->family)) {
        p->model = meg_grow(p->model, &p->model_room, (size_t)p->models + 1, sizeof *p->model);
        memmove(p->model + at + 1, p->model + at, (size_t)(p->models - at) * sizeof *p->model);
        p->models++;
    }
    p->model[at] = *m;
    p->model[at].family = meg_pool_text(p->pool, "%s", m->family);
}

void meg_prices_add_link(meg_prices *p, const char *line)
{
    p->link = meg_grow((void *)p->link, &p->link_room, (size_t)p->links + 1, sizeof *p->link);
    p->link[p->links++] = meg_pool_text(p->pool, "%s", line);
}

const meg_price *meg_prices_at(const meg_prices *p, int i)
{
    return i >= 0 && i < p->prices ? &p->price[i] : NULL;
}

const meg_price_model *meg_prices_model_at(const meg_prices *p, int i)
{
    return i >= 0 && i < p->models ? &p->model[i] : NULL;
}

const char *meg_prices_link_at(const meg_prices *p, int i)
{
    return i >= 0 && i < p->links ? p->link[i] : NULL;
}

const meg_price *meg_prices_find(const meg_prices *p, const char *key)
{
    int at = place_of(p->price, p->prices, sizeof *p->price, key);
    return is_there(p->price, p->prices, sizeof *p->price, at, key) ? &p->price[at] : NULL;
}

const meg_price_model *meg_prices_model(const meg_prices *p, const char *family)
{
    int at = place_of(p->model, p->models, sizeof *p->model, family);
    return is_there(p->model, p->models, sizeof *p->model, at, family) ? &p->model[at] : NULL;
}

/* ---- seconds ---- */

void meg_price_figures(const meg_price_query *q, double figure[MEG_TERMS])
{
    figure[MEG_TERM_BASE] = 1;
    figure[MEG_TERM_FLOP] = q->flops;
    figure[MEG_TERM_BYTE] = q->traffic;
    figure[MEG_TERM_COLD] = q->traffic > NEAR ? q->traffic - NEAR : 0;
    figure[MEG_TERM_FAR] = q->traffic > FAR ? q->traffic - FAR : 0;
}

static double fitted(const meg_price_model *m, const meg_price_query *q)
{
    double figure[MEG_TERMS], seconds = 0;
    meg_price_figures(q, figure);
    for (int i = 0; i < MEG_TERMS; i++)
        seconds += m->term[i] * figure[i];
    return seconds;
}

static double octaves(double a, double b)
{
    return log2(fmax(a, 1) / fmax(b, 1));
}

/* How much slower than the model measured kernels of like size are: the mean of logarithms, in which each counts
 * the less, the more octaves of operations and bytes it is away, and the model itself counts, too. */
static double near_by(const meg_prices *p, const meg_price_model *m, const meg_price_query *q)
{
    size_t length = strlen(m->family);
    double sum = 0, weights = MODEL_COUNTS;
    for (int i = place_of(p->price, p->prices, sizeof *p->price, m->family); i < p->prices; i++) {
        const meg_price *one = &p->price[i];
        if (strncmp(one->key, m->family, length) != 0) break;
        if (one->key[length] != ' ' || one->traffic + one->flops <= 0 || one->seconds <= 0)
            continue;
        double flops = octaves(one->flops, q->flops), bytes = octaves(one->traffic, q->traffic);
        double weight = exp(-(flops * flops + bytes * bytes) / 2);
        meg_price_query there = {.flops = one->flops, .traffic = one->traffic};
        if (weight < 1e-3) continue;
        sum += weight * log(one->seconds / fmax(fitted(m, &there), 1e-9));
        weights += weight;
    }
    return fmin(fmax(exp(sum / weights), 1 / FARTHEST), FARTHEST);
}

/* Share of the machine's peak that kernels reach, by the beginning of their name. Depthwise ones
 * have one product per byte or so. Winograd's operations are counted such that they reach all of it. */
static double efficiency(const char *impl)
{
    static const struct {
        const char *begin;
        double share;
    } known[] = {{"jit_1x1", .75}, {"jit_dw", .20}, {"jit", .80},     {"direct", .85},
                 {"own", .45},     {"sgemm", .5},   {"winograd", 1.}, {"", .40}};
    int i = 0;
    while (strncmp(impl, known[i].begin, strlen(known[i].begin)) != 0)
        i++;
    return known[i].share;
}

/* The roofline: as long as the slower of computing and moving takes. */
double meg_rates_guess(const meg_rates *r, const meg_price_query *q)
{
    bool plain = strcmp(q->impl, "plain") == 0;
    double rate = plain ? r->plain : r->flops * efficiency(q->impl);
    double computing = q->flops / rate, moving = q->traffic / r->bandwidth;
    return computing > moving ? computing : moving;
}

double meg_prices_step(const meg_prices *p)
{
    return (p ? p : meg_prices_builtin())->head.rates.step;
}

double meg_prices_seconds(const meg_prices *p, const meg_price_query *q)
{
    if (!p) p = meg_prices_builtin();
    const meg_price *measured = *q->key && p->prices ? meg_prices_find(p, q->key) : NULL;
    const meg_price_model *model = measured ? NULL : meg_prices_model(p, q->family);
    double seconds = measured ? measured->seconds
                     : model  ? fitted(model, q) * near_by(p, model, q)
                              : meg_rates_guess(&p->head.rates, q);
    return p->head.rates.launch + seconds;
}
