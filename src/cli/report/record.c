/* Records: see record.h. They go to stdout, which holds nothing else under --json. */
#include "cli/report/record.h"
#include "base/files/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void key_of(meg_record *r, const char *key)
{
    fputs(r->more ? ", " : "{", stdout);
    r->more = true;
    meg_json_print(stdout, key);
    fputs(": ", stdout);
}

void meg_record_text(meg_record *r, const char *key, const char *value)
{
    key_of(r, key);
    meg_json_print(stdout, value);
}

void meg_record_int(meg_record *r, const char *key, int64_t value)
{
    key_of(r, key);
    printf("%" PRId64, value);
}

/* The fewest digits that give the same number. */
static void put_real(double value)
{
    char text[32] = "null";
    for (int digits = 6; digits <= 17 && isfinite(value); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    fputs(text, stdout);
}

void meg_record_real(meg_record *r, const char *key, double value)
{
    key_of(r, key);
    put_real(value);
}

void meg_record_reals(meg_record *r, const char *key, const double *value, size_t count)
{
    key_of(r, key);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ", " : "[", stdout);
        put_real(value[i]);
    }
    fputs(count ? "]" : "[]", stdout);
}

void meg_record_true(meg_record *r, const char *key)
{
    key_of(r, key);
    fputs("true", stdout);
}

void meg_record_end(meg_record *r)
{
    puts(r->more ? "}" : "{}");
    fflush(stdout);
    *r = (meg_record){0};
}
