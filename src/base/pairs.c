/* Walking option strings: see pairs.h. A value runs to the next blank; one that holds blanks is quoted, dir="my data".
 */
#include "base/pairs.h"

#include <stdio.h>
#include <string.h>

static const char BLANKS[] = " \t\r\n";

static meg_excerpt excerpt(const char *at, size_t length)
{
    return (meg_excerpt){at, (int)length};
}

bool meg_given_next(const char *at, meg_given *p)
{
    at += strspn(at, BLANKS);
    if (!*at) return false;
    size_t length = strcspn(at, "= \t\r\n");
    *p = (meg_given){.word = excerpt(at, length), .end = at + length};
    if (*p->end != '=') return true;

    const char *value = p->end + 1;
    if (*value == '"' || *value == '\'') {
        const char *close = strchr(value + 1, *value);
        p->open = !close;
        p->value = excerpt(value + 1, close ? (size_t)(close - value - 1) : strlen(value + 1));
        p->end = close ? close + 1 : p->value.at + p->value.length;
        return true;
    }
    p->value = excerpt(value, strcspn(value, BLANKS));
    p->end = value + p->value.length;
    return true;
}

bool meg_excerpt_is(meg_excerpt s, const char *text)
{
    return strlen(text) == (size_t)s.length && memcmp(s.at, text, (size_t)s.length) == 0;
}

bool meg_given_find(const char *text, const char *word, meg_given *p)
{
    for (const char *at = text; meg_given_next(at, p); at = p->end)
        if (meg_excerpt_is(p->word, word)) return true;
    return false;
}

int meg_options_next(const char **at, char word[MEG_TEXT], meg_excerpt *value)
{
    meg_given p;
    if (!meg_given_next(*at, &p)) return 0;
    if (p.open || p.word.length >= MEG_TEXT) return -1;
    snprintf(word, MEG_TEXT, "%.*s", p.word.length, p.word.at);
    *value = p.value.at ? p.value : excerpt("yes", 3);
    *at = p.end;
    return 1;
}

bool meg_options_has(const char *text, const char *word)
{
    meg_given p;
    return text && meg_given_find(text, word, &p);
}

static void cut(const meg_given *p, char *text)
{
    memmove(text + (p->word.at - text), p->end, strlen(p->end) + 1);
}

bool meg_options_take(char *text, const char *word, char *value, size_t size)
{
    meg_given p;
    if (!text || !meg_given_find(text, word, &p)) return false;
    if (!p.value.at || p.open || (size_t)p.value.length >= size) return false;
    memcpy(value, p.value.at, (size_t)p.value.length);
    value[p.value.length] = '\0';
    cut(&p, text);
    return true;
}

bool meg_options_drop(char *text, const char *word)
{
    meg_given p;
    if (!text || !meg_given_find(text, word, &p)) return false;
    cut(&p, text);
    return true;
}
