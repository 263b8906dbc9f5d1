/* Spans of text, as notes in files have them: lines, words, names in quotes. */
#ifndef MEG_IMPORT_ONNX_WIRE_TEXTS_H
#define MEG_IMPORT_ONNX_WIRE_TEXTS_H

#include "import/onnx/wire/proto.h"

#include <string.h>

static inline meg_bytes meg_text_span(const char *text)
{
    return (meg_bytes){(const uint8_t *)text, (const uint8_t *)text + strlen(text)};
}

static inline bool meg_begins(meg_bytes s, const char *head)
{
    size_t length = strlen(head);
    return (size_t)meg_bytes_bytes(s) >= length && memcmp(s.at, head, length) == 0;
}

static inline bool meg_ends(meg_bytes s, const char *tail)
{
    size_t length = strlen(tail);
    return (size_t)meg_bytes_bytes(s) >= length && memcmp(s.end - length, tail, length) == 0;
}

static inline bool meg_contains(meg_bytes s, const char *part)
{
    for (; s.at < s.end; s.at++)
        if (meg_begins(s, part)) return true;
    return false;
}

/* Cuts the next line off. */
static inline bool meg_next_line(meg_bytes *text, meg_bytes *line)
{
    if (text->at >= text->end) return false;
    const uint8_t *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
    if (!end) end = text->end;
    *line = (meg_bytes){text->at, end};
    text->at = end < text->end ? end + 1 : end;
    return true;
}

/* Cuts the next word off, up to a blank. */
static inline meg_bytes meg_next_word(meg_bytes *line)
{
    while (line->at < line->end && *line->at == ' ')
        line->at++;
    meg_bytes word = {line->at, line->at};
    while (line->at < line->end && *line->at != ' ')
        line->at++;
    word.end = line->at;
    return word;
}

/* Cuts the next text between single quotes off. */
static inline bool meg_next_quoted(meg_bytes *s, meg_bytes *out)
{
    while (s->at < s->end && *s->at != '\'')
        s->at++;
    if (s->at >= s->end) return false;
    out->at = out->end = ++s->at;
    while (s->at < s->end && *s->at != '\'')
        s->at++;
    out->end = s->at;
    if (s->at < s->end) s->at++;
    return true;
}

#endif
