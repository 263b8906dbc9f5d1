/* Panels of a matrix product: see panel.h. */
#include "exec/meters/panel.h"

typedef float vec4 __attribute__((vector_size(16)));

static void panel_portable(meg_panel_memory *p)
{
    const vec4 *b = (const vec4 *)p->b;
    vec4 c[4][2] = {0};
    for (int k = 0; k < MEG_PANEL_DEPTH; k++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            c[i][0] += p->a[4 * k + i] * b[2 * k];
            c[i][1] += p->a[4 * k + i] * b[2 * k + 1];
        }
    __builtin_memcpy(p->c, c, sizeof c);
}

#ifdef __x86_64__
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec16 __attribute__((vector_size(64)));

__attribute__((target("avx2,fma"))) static void panel_avx2(meg_panel_memory *p)
{
    const vec8 *b = (const vec8 *)p->b;
    vec8 c[6][2] = {0};
    for (int k = 0; k < MEG_PANEL_DEPTH; k++)
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++) {
            c[i][0] += p->a[6 * k + i] * b[2 * k];
            c[i][1] += p->a[6 * k + i] * b[2 * k + 1];
        }
    __builtin_memcpy(p->c, c, sizeof c);
}

__attribute__((target("avx512f"))) static void panel_avx512(meg_panel_memory *p)
{
    const vec16 *b = (const vec16 *)p->b;
    vec16 c[12][2] = {0};
    for (int k = 0; k < MEG_PANEL_DEPTH; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            c[i][0] += p->a[12 * k + i] * b[2 * k];
            c[i][1] += p->a[12 * k + i] * b[2 * k + 1];
        }
    __builtin_memcpy(p->c, c, sizeof c);
}
#endif

meg_panel meg_panel_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return (meg_panel){panel_avx512, 2.0 * MEG_PANEL_DEPTH * 12 * 2 * 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (meg_panel){panel_avx2, 2.0 * MEG_PANEL_DEPTH * 6 * 2 * 8};
#endif
    return (meg_panel){panel_portable, 2.0 * MEG_PANEL_DEPTH * 4 * 2 * 4};
}

void meg_panel_fill(meg_panel_memory *p)
{
    *p = (meg_panel_memory){.a = {0}};
    for (int i = 0; i < MEG_PANEL_DEPTH * MEG_PANEL_ROWS; i++)
        p->a[i] = 1;
}
