/* Status and message: see status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

meg_status meg_fail(meg_error *e, meg_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    e->status = status;
    e->trail[0] = '\0';
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return status;
}

meg_status meg_trail(meg_error *e, meg_status status, const char *function)
{
    size_t used = strlen(e->trail);
    snprintf(e->trail + used, sizeof e->trail - used, "%s%s", used ? " < " : "", function);
    return status;
}

void meg_error_clear(meg_error *e)
{
    e->status = MEG_OK;
    e->message[0] = e->trail[0] = '\0';
}
