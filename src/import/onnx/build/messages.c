/* What a user is told: why a node cannot be read, and what a model lost on its way into the file. */
#include "import/onnx/build/build.h"

#include <stdarg.h>
#include <stdio.h>

meg_status meg_onnx_refuse(const meg_onnx_build *b, const meg_onnx_node *n, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    meg_bytes name = n->name;
    if (name.at == name.end && n->outputs) name = n->out[0];
    return meg_fail(b->error, MEG_EUNSUPPORTED, "%s: %.*s%s%.*s '%.*s': %s", b->file->path,
                    MEG_SPAN_TEXT(n->domain),
                    n->domain.at == n->domain.end ? "" : "::", MEG_SPAN_TEXT(n->op),
                    MEG_SPAN_TEXT(name), why);
}

void meg_onnx_warn(const meg_onnx_build *b, const char *format, ...)
{
    char text[512];
    va_list args;
    if (!b->listener) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *message = meg_pool_text(b->file->pool, "%s: %s", b->file->path, text);
    b->listener->warn(b->listener->context, message);
}

void meg_onnx_list_name(meg_onnx_build *b, meg_onnx_names *list, meg_bytes name)
{
    enum {
        MOST_NAMES = 8
    };
    if (list->count++ >= MOST_NAMES) return;
    list->text = meg_pool_text(b->file->pool, "%s%s%.*s", list->text ? list->text : "",
                               list->text ? ", " : "", MEG_SPAN_TEXT(name));
}
