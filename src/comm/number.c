/* Numbers: see number.h. One loop per (type, operation), in a table. */
#include "comm/number.h"

int64_t meg_number_bytes(meg_number type)
{
    static const int64_t bytes[MEG_NUMBERS] = {4, 8, 4, 8};
    return bytes[type];
}

typedef void combine_function(void *into, const void *from, int64_t count);

/* Unsigned inside: integer sums may wrap, which is not defined for signed ones. */
#define LOOP(name, type, expression)                                                               \
    static void name(void *into, const void *from, int64_t count)                                  \
    {                                                                                              \
        type *restrict y = into;                                                                   \
        const type *restrict x = from;                                                             \
        for (int64_t i = 0; i < count; i++)                                                        \
            y[i] = expression;                                                                     \
    }
LOOP(sum_f32, float, y[i] + x[i])
LOOP(sum_f64, double, y[i] + x[i])
LOOP(sum_i32, uint32_t, y[i] + x[i])
LOOP(sum_i64, uint64_t, y[i] + x[i])
LOOP(max_f32, float, y[i] > x[i] || y[i] != y[i] ? y[i] : x[i])
LOOP(max_f64, double, y[i] > x[i] || y[i] != y[i] ? y[i] : x[i])
LOOP(max_i32, int32_t, y[i] > x[i] ? y[i] : x[i])
LOOP(max_i64, int64_t, y[i] > x[i] ? y[i] : x[i])
#undef LOOP

void meg_numbers_combine(meg_combine how, meg_number type, void *into, const void *from,
                         int64_t count)
{
    static combine_function *const table[MEG_COMBINES][MEG_NUMBERS] = {
        [MEG_COMBINE_SUM] = {sum_f32, sum_f64, sum_i32, sum_i64},
        [MEG_COMBINE_MAX] = {max_f32, max_f64, max_i32, max_i64},
    };
    table[how][type](into, from, count);
}
