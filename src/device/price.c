/* What a book of prices (machine/prices.h) knows a kernel by: texts made of a request, so that the same
 * work has the same text when it is planned, when it is measured, and in a book of last year.
 *
 *     conv fwd jit:avx2                                                      the family
 *     conv fwd jit:avx2 (filters=64 kernel=3) x0=8x64x1x56x56/c8 x1=... y0=...    the key
 */
#include "device/device.h"
#include "machine/prices.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

typedef struct text {
    char *at; /* (MEG_KEY) */
    size_t used;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int more = vsnprintf(t->at + t->used, MEG_KEY - t->used, format, list);
    va_end(list);
    if (more > 0) t->used += (size_t)more;
    if (t->used >= MEG_KEY) t->used = MEG_KEY - 1; /* cut, alike for all that begin alike */
}

static bool deep(const meg_request *r)
{
    return r->code == MEG_KERNEL && meg_extent(&r->work.out, MEG_D) > 1;
}

/* What it melts with makes it another kernel: an addition alone has nothing to do backward. */
static bool rectifies(const meg_request *r)
{
    size_t at = r->code == MEG_KERNEL ? r->node->op->relu_at : 0;
    return at && *(const bool *)((const char *)r->node->attr + at - 1);
}

static void put_family(text *t, const meg_request *r, const char *impl)
{
    bool update = r->code == MEG_UPDATE && r->optimizer, kernel = r->code == MEG_KERNEL;
    put(t, "%s%s%s %s%s%s",
        kernel   ? r->node->op->name
        : update ? r->optimizer->name
                 : meg_code_name(r->code),
        deep(r) ? "3d" : "", rectifies(r) ? "+relu" : "",
        kernel   ? meg_pass_name(r->pass)
        : update ? "update"
                 : "",
        kernel || update ? " " : "", *impl ? impl : "none");
}

static void put_box(text *t, const char *name, int index, const meg_box *b)
{
    put(t, " %s", name);
    if (index >= 0) put(t, "%d", index);
    for (int axis = 0; axis < MEG_AXES; axis++)
        put(t, "%s%" PRId64, axis ? "x" : "=", meg_extent(b, axis));
}

static void put_operands(text *t, const meg_request *r)
{
    static const struct {
        const char *name;
        int first, count;
    } kind[] = {{"x", MEG_X, MEG_INPUTS},
                {"y", MEG_Y, MEG_OUTPUTS},
                {"aux", MEG_AUX, MEG_AUXES},
                {"dy", MEG_DY, MEG_OUTPUTS},
                {"dx", MEG_DX, MEG_INPUTS}};
    meg_mask used = meg_request_reads(r) | meg_request_writes(r) | MEG_BIT(MEG_DY + 1);
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int i = 0; i < kind[k].count; i++) {
            int o = kind[k].first + i;
            if (!(used & MEG_BIT(o)) || meg_box_empty(&r->box[o])) continue;
            put_box(t, kind[k].name, i, &r->box[o]);
            put(t, "/%s", meg_format_name(r->format[o]));
            if (r->dtype[o] != MEG_F32) put(t, "/%s", meg_dtype_name(r->dtype[o]));
        }
}

void meg_request_family(const meg_request *r, const char *impl, char out[MEG_KEY])
{
    put_family(&(text){out, 0}, r, impl);
}

void meg_request_key(const meg_request *r, const char *impl, char out[MEG_KEY])
{
    text t = {out, 0};
    char words[MEG_KEY] = "";
    const meg_param *params = r->code == MEG_KERNEL                   ? r->node->op->params
                              : r->code == MEG_UPDATE && r->optimizer ? r->optimizer->params
                                                                      : NULL;
    put_family(&t, r, impl);
    if (params)
        meg_options_print(params, r->code == MEG_KERNEL ? r->node->attr : r->settings, words,
                          sizeof words);
    if (*words) put(&t, " (%s)", words);
    if (r->code == MEG_KERNEL) put_box(&t, "work", -1, &r->work.out);
    put_operands(&t, r);
}

double meg_request_moved(const meg_request *r, double traffic)
{
    bool second = r->code == MEG_KERNEL && r->node->outputs == 1 && r->pass == MEG_BACKWARD;
    const meg_box *b = &r->box[MEG_DY + 1];
    if (!second || meg_box_empty(b)) return traffic;
    return traffic + (double)(meg_box_size(b) * meg_dtype_bytes(r->dtype[MEG_DY]));
}

double meg_request_seconds(const meg_request *r, const meg_kernel_work *w, const meg_prices *prices)
{
    char key[MEG_KEY] = "", family[MEG_KEY] = "";
    const meg_prices *p = prices ? prices : meg_prices_builtin();
    if (meg_prices_model_at(p, 0)) meg_request_family(r, w->impl, family);
    if (meg_prices_at(p, 0)) meg_request_key(r, w->impl, key);
    return meg_prices_seconds(p, &(meg_price_query){.key = key,
                                                    .family = family,
                                                    .impl = w->impl,
                                                    .flops = w->flops,
                                                    .traffic = meg_request_moved(r, w->traffic)});
}
