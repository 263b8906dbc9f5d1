/* A number of a tensor, whatever its type. */
#ifndef MEG_TESTS_NUMBERS_HELP_H
#define MEG_TESTS_NUMBERS_HELP_H

#include "graph/op.h"

static inline double number_get(meg_dtype type, const void *data, int64_t i)
{
    switch (type) {
    case MEG_F64:
        return ((const double *)data)[i];
    case MEG_F32:
        return (double)((const float *)data)[i];
    case MEG_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static inline void number_set(meg_dtype type, void *data, int64_t i, double value)
{
    switch (type) {
    case MEG_F64:
        ((double *)data)[i] = value;
        break;
    case MEG_F32:
        ((float *)data)[i] = (float)value;
        break;
    case MEG_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

#endif
