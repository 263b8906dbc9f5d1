/* The log: see log.h. A message is put together first and written by one call, so that lines of
 * several threads or ranks do not mix.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void meg_log(const meg_logger *log, meg_log_level level, const char *format, ...)
{
    if (!log || level == MEG_QUIET || level > log->level) return;

    char text[2048], line[sizeof text + 32];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *clear = isatty(STDERR_FILENO) ? "\r\033[K"
                                              : ""; /* of a line that is being redrawn */
    snprintf(line, sizeof line, "%smegalith: %s%s\n", clear, level == MEG_WARN ? "warning: " : "",
             text);
    fputs(line, stderr);
}
