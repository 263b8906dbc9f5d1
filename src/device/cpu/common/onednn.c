/* oneDNN: see onednn.h. The API is that of 2.x (Debian has 2.6.3). */
#include "device/cpu/common/onednn.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* ---- engine ---- */

static const char *status_text(dnnl_status_t status)
{
    static const char *const text[] = {
        [dnnl_success] = "success",
        [dnnl_out_of_memory] = "out of memory",
        [dnnl_invalid_arguments] = "invalid arguments",
        [dnnl_unimplemented] = "not implemented",
        [dnnl_runtime_error] = "runtime error",
        [dnnl_not_required] = "not required",
    };
    size_t i = (size_t)status;
    return i < sizeof text / sizeof *text && text[i] ? text[i] : "unknown status";
}

struct meg_onednn *meg_onednn_open(meg_error *e, int threads)
{
    meg_onednn *o = calloc(1, sizeof *o);
    if (!o) {
        meg_fail(e, MEG_ENOMEM, "no memory for oneDNN's engine: %zu bytes", sizeof *o);
        return NULL;
    }
    o->threads = threads;
    dnnl_status_t status = dnnl_engine_create(&o->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) status = dnnl_primitive_attr_create(&o->attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(o->attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) return o;
    meg_fail(e, MEG_EUNSUPPORTED, "oneDNN's cpu engine does not start: %s; use device=ref",
             status_text(status));
    meg_onednn_close(o);
    return NULL;
}

void meg_onednn_close(struct meg_onednn *o)
{
    if (!o) return;
    dnnl_primitive_attr_destroy(o->attr);
    dnnl_stream_destroy(o->stream);
    dnnl_engine_destroy(o->engine);
    free(o);
}

void meg_onednn_version(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, "%d.%d.%d", v->major, v->minor, v->patch);
}

int meg_onednn_block(void)
{
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    unsigned avx512 = (unsigned)dnnl_cpu_isa_avx512_core;
    return (isa & avx512) == avx512 ? 16 : 8;
}

int meg_onednn_enter(const meg_onednn *o)
{
    int team = omp_get_max_threads();
    omp_set_num_threads(o->threads);
    return team;
}

void meg_onednn_leave(int team)
{
    omp_set_num_threads(team);
}

/* ---- formats ---- */

/* oneDNN's names with two and with three spatial axes; 0: it has none. */
typedef struct tags {
    dnnl_format_tag_t flat, deep;
    bool grouped;
} tags;

static const tags table[MEG_FORMATS] = {
    [MEG_FORMAT_C8] = {dnnl_nChw8c, dnnl_nCdhw8c, false},
    [MEG_FORMAT_C16] = {dnnl_nChw16c, dnnl_nCdhw16c, false},
    [MEG_FORMAT_Oxi8o] = {dnnl_Ohwi8o, dnnl_Odhwi8o, false},
    [MEG_FORMAT_Oxi16o] = {dnnl_Ohwi16o, dnnl_Odhwi16o, false},
    [MEG_FORMAT_OIx8i8o] = {dnnl_OIhw8i8o, dnnl_OIdhw8i8o, false},
    [MEG_FORMAT_OIx8o8i] = {dnnl_OIhw8o8i, dnnl_OIdhw8o8i, false},
    [MEG_FORMAT_OIx16i16o] = {dnnl_OIhw16i16o, dnnl_OIdhw16i16o, false},
    [MEG_FORMAT_OIx16o16i] = {dnnl_OIhw16o16i, dnnl_OIdhw16o16i, false},
    [MEG_FORMAT_IOx16o16i] = {dnnl_IOhw16o16i, dnnl_IOdhw16o16i, false},
    [MEG_FORMAT_IOx16i16o] = {dnnl_IOhw16i16o, dnnl_IOdhw16i16o, false},
    [MEG_FORMAT_gOxi8o] = {dnnl_gOhwi8o, dnnl_gOdhwi8o, true},
    [MEG_FORMAT_gOxi16o] = {dnnl_gOhwi16o, dnnl_gOdhwi16o, true},
    [MEG_FORMAT_gOIx8i8o] = {dnnl_gOIhw8i8o, dnnl_gOIdhw8i8o, true},
    [MEG_FORMAT_gOIx8o8i] = {dnnl_gOIhw8o8i, dnnl_gOIdhw8o8i, true},
    [MEG_FORMAT_gOIx16i16o] = {dnnl_gOIhw16i16o, dnnl_gOIdhw16i16o, true},
    [MEG_FORMAT_gOIx16o16i] = {dnnl_gOIhw16o16i, dnnl_gOIdhw16o16i, true},
    [MEG_FORMAT_Goix8g] = {dnnl_Goihw8g, dnnl_format_tag_undef, true},
    [MEG_FORMAT_Goix16g] = {dnnl_Goihw16g, dnnl_Goidhw16g, true},
};

static dnnl_format_tag_t tag_of(const meg_onednn_shape *s, meg_format f)
{
    if (f == MEG_FORMAT_PLAIN)
        return s->axes == 4 ? dnnl_abcd : s->axes == 5 ? dnnl_abcde : dnnl_abcdef;
    if (table[f].grouped != s->grouped) return dnnl_format_tag_undef;
    return s->axes - s->grouped == 4 ? table[f].flat : table[f].deep;
}

meg_onednn_shape meg_onednn_shape_of(const meg_box *b, int64_t groups, bool deep)
{
    meg_onednn_shape s = {.grouped = groups > 0};
    int64_t parts = groups > 0 ? groups : 1;
    if (s.grouped) s.at[s.axes++] = groups;
    for (int axis = 0; axis < MEG_AXES; axis++)
        if (axis != MEG_D || deep)
            s.at[s.axes++] = meg_extent(b, axis) / (axis == MEG_N ? parts : 1);
    return s;
}

bool meg_onednn_desc(const meg_onednn_shape *s, meg_format f, dnnl_memory_desc_t *out)
{
    dnnl_format_tag_t tag = tag_of(s, f);
    if (tag == dnnl_format_tag_undef) return false;
    return dnnl_memory_desc_init_by_tag(out, s->axes, s->at, dnnl_f32, tag) == dnnl_success;
}

dnnl_memory_desc_t meg_onednn_any(const meg_onednn_shape *s)
{
    dnnl_memory_desc_t desc = {0};
    dnnl_memory_desc_init_by_tag(&desc, s->axes, s->at, dnnl_f32, dnnl_format_tag_any);
    return desc;
}

bool meg_onednn_format(const meg_onednn_shape *s, const dnnl_memory_desc_t *desc, meg_format *out)
{
    for (meg_format f = 0; f < MEG_FORMATS; f++) {
        dnnl_memory_desc_t candidate;
        if (!meg_onednn_desc(s, f, &candidate) || !dnnl_memory_desc_equal(desc, &candidate))
            continue;
        *out = f;
        return true;
    }
    return false;
}

int64_t meg_onednn_bytes(const meg_onednn_shape *s, meg_format f)
{
    dnnl_memory_desc_t desc;
    return meg_onednn_desc(s, f, &desc) ? (int64_t)dnnl_memory_desc_get_size(&desc) : -1;
}

/* ---- primitives ---- */

const char *meg_onednn_impl(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name;
}

/* "ref:any", "gemm:ref", "simple:ref": loops that no one tuned, a hundred times slower. */
static bool reference(const_dnnl_primitive_desc_t pd)
{
    const char *name = meg_onednn_impl(pd);
    return strncmp(name, "ref", 3) == 0 || strstr(name, ":ref") != NULL;
}

dnnl_primitive_desc_t meg_onednn_find(const meg_onednn *o, const_dnnl_op_desc_t what,
                                      meg_onednn_accept *accept, void *context)
{
    dnnl_primitive_desc_iterator_t at = NULL;
    dnnl_primitive_desc_t found = NULL;
    if (dnnl_primitive_desc_iterator_create(&at, what, o->attr, o->engine, NULL) != dnnl_success)
        return NULL;
    do {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(at);
        if (pd && !reference(pd) && (!accept || accept(pd, context))) found = pd;
        else dnnl_primitive_desc_destroy(pd);
    } while (!found && dnnl_primitive_desc_iterator_next(at) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(at);
    return found;
}

dnnl_primitive_desc_t meg_onednn_reorder(const meg_onednn *o, const dnnl_memory_desc_t *from,
                                         const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&pd, from, o->engine, to, o->engine,
                                                              o->attr);
    return status == dnnl_success ? pd : NULL;
}

int64_t meg_onednn_scratch(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return desc ? (int64_t)dnnl_memory_desc_get_size(desc) : 0;
}

/* ---- steps ---- */

bool meg_onednn_step_make(const meg_onednn *o, const_dnnl_primitive_desc_t pd,
                          meg_onednn_step *step)
{
    if (dnnl_primitive_create(&step->primitive, pd) != dnnl_success) return false;
    for (int i = 0; i < step->count; i++) {
        int arg = step->place[i].arg;
        const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md,
                                                                      arg);
        step->arg[i].arg = arg;
        if (!desc || dnnl_memory_create(&step->arg[i].memory, desc, o->engine, DNNL_MEMORY_NONE) !=
                         dnnl_success) {
            meg_onednn_step_clear(step);
            return false;
        }
    }
    return true;
}

void meg_onednn_must(dnnl_status_t status)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "megalith: oneDNN failed in the middle of a step: %s\n", status_text(status));
    abort();
}

void meg_onednn_step_run(const meg_onednn *o, meg_onednn_step *step, void *const at[MEG_OPERANDS])
{
    if (!step->primitive) return;
    for (int i = 0; i < step->count; i++) {
        char *memory = (char *)at[step->place[i].operand] + step->place[i].offset;
        meg_onednn_must(dnnl_memory_set_data_handle(step->arg[i].memory, memory));
    }
    meg_onednn_must(dnnl_primitive_execute(step->primitive, o->stream, step->count, step->arg));
    meg_onednn_must(dnnl_stream_wait(o->stream));
}

void meg_onednn_step_clear(meg_onednn_step *step)
{
    for (int i = 0; i < step->count; i++)
        dnnl_memory_destroy(step->arg[i].memory);
    dnnl_primitive_destroy(step->primitive);
    *step = (meg_onednn_step){0};
}
