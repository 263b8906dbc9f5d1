/* The log goes to stderr; results go to stdout. */
#ifndef MEG_BASE_LOG_H
#define MEG_BASE_LOG_H

typedef enum meg_log_level {
    MEG_QUIET,
    MEG_WARN,
    MEG_INFO,
    MEG_DEBUG
} meg_log_level;

typedef struct meg_logger {
    meg_log_level level;
} meg_logger;

void meg_log(const meg_logger *log, meg_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
