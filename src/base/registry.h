/* Registries: what every table of entries with names is asked for. A .def file has a line for each entry
 * and makes the table; these make the functions that look into it, which every header declares itself:
 *
 *     MEG_REGISTRY_AT(meg_op, meg_op_at, table)            the i-th; NULL past the end. table: of pointers
 *     MEG_REGISTRY_FIND(meg_op, meg_op_find, meg_op_at)    the one of this name; NULL: there is none
 *     MEG_REGISTRY_NAME(meg_op_name, meg_op_at)            the i-th name, as meg_unknown wants it
 */
#ifndef MEG_BASE_REGISTRY_H
#define MEG_BASE_REGISTRY_H

#include <stddef.h>
#include <string.h>

#define MEG_REGISTRY_AT(type, at, table)                                                           \
    const type *at(int i)                                                                          \
    {                                                                                              \
        return i >= 0 && i < (int)(sizeof table / sizeof *table) ? table[i] : NULL;                \
    }

#define MEG_REGISTRY_FIND(type, find, at)                                                          \
    const type *find(const char *name)                                                             \
    {                                                                                              \
        for (int i = 0; at(i); i++)                                                                \
            if (strcmp(at(i)->name, name) == 0) return at(i);                                      \
        return NULL;                                                                               \
    }

#define MEG_REGISTRY_NAME(name_at, at)                                                             \
    const char *name_at(int i)                                                                     \
    {                                                                                              \
        return at(i) ? at(i)->name : NULL;                                                         \
    }

#endif
