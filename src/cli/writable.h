/* Better known now than after hours of training. */
#ifndef MEG_CLI_WRITABLE_H
#define MEG_CLI_WRITABLE_H

#include "base/status.h"

/* May a file be written here, beside an old one if there is any? "": none is wanted. */
meg_status meg_writable(meg_error *e, const char *path);

#endif
