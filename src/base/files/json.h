/* A scanner for the JSON of file headers: its caller knows the schema and asks for what must come
 * next. No tree is built, nothing recurses, nothing is read beyond `end`.
 */
#ifndef MEG_BASE_FILES_JSON_H
#define MEG_BASE_FILES_JSON_H

#include "base/pool.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct meg_json {
    const char *at, *end;
} meg_json;

/* Each skips blanks, and on success what it read; false leaves `at` where the trouble is. */
bool meg_json_accept(meg_json *j, char mark);
bool meg_json_string(meg_json *j, meg_pool *p, char **out); /* UTF-8; without NUL inside */
bool meg_json_count(meg_json *j, int64_t *out);             /* a whole number, 0 or more */
bool meg_json_done(meg_json *j);                            /* only blanks are left */

void meg_json_print(FILE *out, const char *text); /* as a string, quoted and escaped */

#endif
