/* The JSON scanner: see json.h. The grammar is RFC 8259's. */
#include "base/files/json.h"

#include <string.h>

static void skip_blanks(meg_json *j)
{
    while (j->at < j->end && memchr(" \t\r\n", *j->at, 4))
        j->at++;
}

bool meg_json_accept(meg_json *j, char mark)
{
    skip_blanks(j);
    if (j->at == j->end || *j->at != mark) return false;
    j->at++;
    return true;
}

bool meg_json_done(meg_json *j)
{
    skip_blanks(j);
    return j->at == j->end;
}

bool meg_json_count(meg_json *j, int64_t *out)
{
    skip_blanks(j);
    const char *first = j->at;
    int64_t value = 0;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, *j->at - '0', &value)) return false;
        j->at++;
    }
    if (j->at == first || (*first == '0' && j->at > first + 1)) return false; /* 007 is no number */
    *out = value;
    return true;
}

/* Four hex digits after \u. */
static bool hex4(meg_json *j, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (j->end - j->at < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const char *digit = memchr(digits, *j->at++, 32);
        if (!digit) return false;
        *out = *out << 4 | (uint32_t)(digit - digits) % 16;
    }
    return true;
}

/* What follows \u; characters beyond 16 bits are written as two surrogates. */
static bool unescape(meg_json *j, char **out)
{
    uint32_t code, low;
    if (!hex4(j, &code) || code == 0 || (code >= 0xdc00 && code < 0xe000)) return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u') return false;
        j->at += 2;
        if (!hex4(j, &low) || low < 0xdc00 || low >= 0xe000) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code < 0x80) {
        *(*out)++ = (char)code;
        return true;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; /* bytes that follow the first */
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    *(*out)++ = (char)(lead[more] | code >> 6 * more);
    while (more-- > 0)
        *(*out)++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    return true;
}

/* One character or escape sequence. */
static bool string_step(meg_json *j, char **out)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if ((unsigned char)*j->at < 0x20) return false;
    if (*j->at != '\\') {
        *(*out)++ = *j->at++;
        return true;
    }
    if (++j->at == j->end) return false;
    char escape = *j->at++;
    if (escape == 'u') return unescape(j, out);
    const char *found = memchr(names, escape, sizeof names - 1);
    if (!found) return false;
    *(*out)++ = meanings[found - names];
    return true;
}

bool meg_json_string(meg_json *j, meg_pool *p, char **out)
{
    if (!meg_json_accept(j, '"')) return false;
    const char *close = j->at; /* unescaping never makes a string longer */
    while (close < j->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= j->end) return false;
    char *text = meg_pool_alloc(p, (size_t)(close - j->at) + 1), *to = text;
    while (j->at < close)
        if (!string_step(j, &to)) return false;
    *to = '\0';
    *out = text;
    return meg_json_accept(j, '"');
}

void meg_json_print(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20) fprintf(out, "\\u%04x", (unsigned)*text);
        else fputc(*text, out);
    }
    fputc('"', out);
}
