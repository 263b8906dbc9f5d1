/* Option strings: every kind is read and printed back, every mistake has a message that says what
 * would be right.
 */
#include "base/option.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct thing {
    int64_t count, room;
    double rate;
    meg_axes kernel, stride;
    meg_pads pad;
    bool bias;
    int mode;
    char file[MEG_TEXT];
    const char *list;
} thing;

static const meg_param TABLE[] = {
    {"count", MEG_PARAM_INT, offsetof(thing, count), NULL, "how many", NULL, 1, 9},
    {"room", MEG_PARAM_BYTES, offsetof(thing, room), "0", "memory", NULL, 4096, 1e12},
    {"rate", MEG_PARAM_REAL, offsetof(thing, rate), "0.1", "speed", NULL, 0, 1},
    {"kernel", MEG_PARAM_AXES, offsetof(thing, kernel), "3", "taps", NULL, 1, 1e18},
    {"stride", MEG_PARAM_AXES, offsetof(thing, stride), "", "of the kernel by default", NULL, 1,
     99},
    {"pad", MEG_PARAM_PADS, offsetof(thing, pad), "0", "zeros around", NULL, 0, 9},
    {"bias", MEG_PARAM_BOOL, offsetof(thing, bias), "yes", "adds one", NULL, 0, 0},
    {"mode", MEG_PARAM_CHOICE, offsetof(thing, mode), "none", "of work", "auto|none|all", 0, 0},
    {"file", MEG_PARAM_TEXT, offsetof(thing, file), "", "to read", NULL, 0, 0},
    {"list", MEG_PARAM_STRING, offsetof(thing, list), "a,b", "of names", NULL, 0, 0},
    {0},
};

static thing parse_into(meg_pool *pool, const char *text)
{
    meg_error e;
    thing t;
    if (meg_options_fill(&e, &(meg_form){TABLE, "thing", pool}, text, &t) != MEG_OK)
        fail_msg("%s: %s", text, e.message);
    return t;
}

static thing parse(const char *text) /* without a string */
{
    return parse_into(NULL, text);
}

static void test_defaults(void **state)
{
    (void)state;
    thing t = parse("count=2");
    assert_int_equal(t.count, 2);
    assert_int_equal(t.room, 0); /* outside its range: allowed, as it is the default */
    assert_true(t.rate == 0.1);
    assert_int_equal(t.kernel.count, 1);
    assert_int_equal(t.kernel.at[0], 3);
    assert_int_equal(t.stride.count, 0);
    assert_int_equal(t.pad.count, 1);
    assert_true(t.bias);
    assert_int_equal(t.mode, 1);
    assert_string_equal(t.file, "");
}

static void test_values(void **state)
{
    (void)state;
    thing t = parse("  count=9\tbias=off kernel=1x3x5 stride=2 pad=0:1x2 rate=1e-2 mode=all "
                    "room=1.5GiB file='a b/c=d'\n");
    assert_int_equal(t.count, 9);
    assert_false(t.bias);
    assert_int_equal(t.kernel.count, 3);
    assert_int_equal(t.kernel.at[1], 3);
    assert_int_equal(t.kernel.at[2], 5);
    assert_int_equal(t.stride.at[0], 2);
    assert_int_equal(t.pad.count, 2);
    assert_int_equal(t.pad.before[0], 0);
    assert_int_equal(t.pad.after[0], 1);
    assert_int_equal(t.pad.before[1], 2);
    assert_int_equal(t.pad.after[1], 2);
    assert_true(t.rate == 0.01);
    assert_int_equal(t.mode, 2);
    assert_int_equal(t.room, INT64_C(3) << 29);
    assert_string_equal(t.file, "a b/c=d");
    assert_true(parse("bias count=1").bias);
    assert_int_equal(parse("count=1 room=0").room, 0);
}

typedef struct mistake {
    const char *text, *message;
} mistake;

static const mistake MISTAKES[] = {
    {"", "thing: 'count' is missing: write count=... (how many)"},
    {"count=0", "thing: count=0 is out of range: use 1..9"},
    {"count=10", "thing: count=10 is out of range: use 1..9"},
    {"count=1 count=1", "thing: 'count' is given twice"},
    {"count=3x", "thing: count=3x is not a whole number: write it in digits"},
    {"count=", "thing: count= is not a whole number: write it in digits"},
    {"count=1.5", "thing: count=1.5 is not a whole number: write it in digits"},
    {"count=1e99", "thing: count=1e99 is not a whole number: write it in digits"},
    {"count=99999999999999999999", "thing: count=99999999999999999999 is out of range: use 1..9"},
    {"count=-99999999999999999999", "thing: count=-99999999999999999999 is out of range: use 1..9"},
    {"count", "thing: 'count' has no value: write count=..."},
    {"counts=3", "thing: unknown word 'counts' (did you mean count?); known: count room rate "
                 "kernel stride pad bias mode "
                 "file list"},
    {"=3", "thing: unknown word ''; known: count room rate kernel stride pad bias mode file list"},
    {"count=1 rate=2", "thing: rate=2 is out of range: use 0..1"},
    {"count=1 rate=nan", "thing: rate=nan is not a number"},
    {"count=1 rate=inf", "thing: rate=inf is not a number"},
    {"count=1 rate=1e999", "thing: rate=1e999 is out of range: use 0..1"},
    {"count=1 rate=fast", "thing: rate=fast is not a number"},
    {"count=1 kernel=0", "thing: kernel=0 is out of range: use 1 or more"},
    {"count=1 kernel=3x", "thing: kernel=3x is not a list of 1 to 5 numbers like 3 or 3x5"},
    {"count=1 kernel=", "thing: kernel= is not a list of 1 to 5 numbers like 3 or 3x5"},
    {"count=1 kernel=1x1x1x1x1x1",
     "thing: kernel=1x1x1x1x1x1 is not a list of 1 to 5 numbers like 3 or 3x5"},
    {"count=1 pad=1:", "thing: pad=1: is not a list of 1 to 5 pads like 1, 1x2 or 0:1x2:2"},
    {"count=1 pad=-1", "thing: pad=-1 is out of range: use 0..9"},
    {"count=1 bias=maybe", "thing: bias=maybe is neither yes nor no"},
    {"count=1 mode=al", "thing: mode=al is not known (did you mean all?): use auto|none|all"},
    {"count=1 mode=", "thing: mode= is not known: use auto|none|all"},
    {"count=1 room=4q", "thing: room=4q is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB"},
    {"count=1 room=-1", "thing: room=-1 is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB"},
    {"count=1 room=9999999TiB",
     "thing: room=9999999TiB is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB"},
    {"count=1 room=1", "thing: room=1 is out of range: use 4096..1000000000000"},
    {"count=1 file='x", "thing: file: the quote is not closed"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i++) {
        meg_error e = {0};
        thing t;
        meg_status status = meg_options_parse(&e, TABLE, "thing", MISTAKES[i].text, &t);
        if (status != MEG_EARG) fail_msg("'%s' was accepted", MISTAKES[i].text);
        assert_string_equal(e.message, MISTAKES[i].message);
    }
}

static void test_long_values(void **state)
{
    (void)state;
    char text[400];
    meg_error e;
    thing t;
    snprintf(text, sizeof text, "count=1 file=%0*d", MEG_TEXT - 1, 0);
    assert_int_equal(strlen(parse(text).file), MEG_TEXT - 1);
    snprintf(text, sizeof text, "count=1 file=%0*d", MEG_TEXT, 0);
    assert_int_equal(meg_options_parse(&e, TABLE, "thing", text, &t), MEG_EARG);
    assert_string_equal(e.message,
                        "thing: the value of file has 256 characters; at most 255 are allowed");
}

/* Strings have any length, and are the pool's. */
static void test_strings(void **state)
{
    (void)state;
    enum {
        LENGTH = 100000
    };
    meg_pool *pool = meg_pool_new();
    char *text = malloc(LENGTH + 64), *end = text + sprintf(text, "list='x y,");
    memset(end, 'z', LENGTH);
    strcpy(end + LENGTH, "' count=4");
    thing t = parse_into(pool, text);
    assert_int_equal(strlen(t.list), LENGTH + 4);
    assert_memory_equal(t.list, "x y,zzz", 7);
    char *printed = meg_options_text(pool, TABLE, &t);
    assert_int_equal(strlen(printed), meg_options_print(TABLE, &t, NULL, 0));
    memset(text, '#', LENGTH); /* nothing points into the text */
    assert_string_equal(parse_into(pool, printed).list, t.list);
    assert_int_equal(t.count, 4);
    assert_string_equal(parse("count=1").list, "a,b");
    assert_string_equal(
        meg_options_text(pool, TABLE, &(thing){.count = 1, .list = "a,b", .rate = 9}),
        "count=1 rate=9 kernel= pad= bias=no mode=auto");
    assert_true(
        meg_param_same(meg_param_find(TABLE, "list"), t.list, parse_into(pool, printed).list));
    char brief[MEG_BRIEF];
    assert_int_equal(strlen(meg_brief(t.list, brief)), MEG_BRIEF - 1);
    assert_string_equal(brief + MEG_BRIEF - 1 - 6, "zzz...");
    assert_string_equal(meg_brief("short", brief), "short");
    free(text);
    meg_pool_free(pool);
}

static void test_walk(void **state)
{
    (void)state;
    char word[MEG_TEXT], text[] = "a='x y' b c=1", open[] = "d=\"never";
    meg_excerpt value;
    const char *at = text, *expected[][2] = {{"a", "x y"}, {"b", "yes"}, {"c", "1"}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(meg_options_next(&at, word, &value), 1);
        assert_string_equal(word, expected[i][0]);
        assert_true(meg_excerpt_is(value, expected[i][1]));
    }
    assert_int_equal(meg_options_next(&at, word, &value), 0);
    at = open;
    assert_int_equal(meg_options_next(&at, word, &value), -1);
    assert_true(meg_options_drop(text, "a"));
    assert_false(meg_options_drop(text, "a"));
    assert_true(meg_options_drop(text, "b"));
    assert_string_equal(text, "  c=1");
}

static void test_set(void **state)
{
    (void)state;
    meg_error e;
    thing t = parse("count=2");
    const meg_form f = {TABLE, "thing", NULL};
    assert_int_equal(meg_options_set(&e, &f, "kernel", "5x7", &t), MEG_OK);
    assert_int_equal(t.kernel.at[1], 7);
    assert_int_equal(meg_options_set(&e, &f, "count", "0", &t), MEG_EARG);
    assert_int_equal(t.count, 2); /* an error leaves the value */
    assert_int_equal(meg_options_set(&e, &f, "nothing", "0", &t), MEG_EARG);
}

static void test_take(void **state)
{
    (void)state;
    char value[16], text[] = "a=1 name=\"x y\" names=3 b", only[] = "name=z";
    assert_true(meg_options_take(text, "name", value, sizeof value));
    assert_string_equal(value, "x y");
    assert_string_equal(text, "a=1  names=3 b");
    assert_false(meg_options_take(text, "name", value, sizeof value));
    assert_false(meg_options_take(text, "b", value, sizeof value)); /* no value */
    assert_true(meg_options_take(only, "name", value, sizeof value));
    assert_string_equal(only, "");
    char longer[] = "name=0123456789abcdef";
    assert_false(meg_options_take(longer, "name", value, sizeof value)); /* never cut short */
    assert_string_equal(longer, "name=0123456789abcdef");
}

/* What is printed reads back to the same struct, and prints the same again. */
static void test_print(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "count=3",
        "count=9 room=1536MiB rate=0.3333333333333333 kernel=1x3x3 stride=2 pad=0:1x2 bias=no "
        "mode=auto file=\"a b\"",
        "count=1 room=4097 file=x.npy",
        "count=1 file='say \"hi\" now'",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[600];
        thing t = parse(texts[i]);
        meg_options_print(TABLE, &t, text, sizeof text);
        assert_string_equal(text, texts[i]);
        meg_options_print(TABLE, &t, text, 6);
        assert_true(strlen(text) < 6);
    }
    thing same = parse("count=1 kernel=3 rate=.1 bias=1 mode=none");
    char text[600];
    meg_options_print(TABLE, &same, text, sizeof text);
    assert_string_equal(text, "count=1");
}

static void test_help(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    meg_options_help(TABLE, out);
    fclose(out);
    assert_non_null(strstr(text, "  count=N                  how many (required)\n"));
    assert_non_null(strstr(text, "  rate=X                   speed (default 0.1)\n"));
    assert_non_null(strstr(text, "  mode=auto|none|all       of work (default none)\n"));
    free(text);
}

static void test_bytes(void **state)
{
    (void)state;
    meg_error e;
    char text[32];
    int64_t bytes;
    assert_int_equal(meg_parse_bytes(&e, "budget", "9223372036854775807", &bytes), MEG_OK);
    assert_int_equal(bytes, INT64_MAX);
    assert_int_equal(meg_parse_bytes(&e, "budget", "64KiB", &bytes), MEG_OK);
    assert_int_equal(bytes, 65536);
    assert_int_equal(meg_parse_bytes(&e, "budget", "2GB", &bytes), MEG_OK);
    assert_int_equal(bytes, 2000000000);
    assert_int_equal(meg_parse_bytes(&e, "budget", "9223372036854775808", &bytes), MEG_EARG);
    assert_int_equal(meg_parse_bytes(&e, "budget", "many", &bytes), MEG_EARG);
    assert_string_equal(e.message,
                        "budget: many is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB");
    meg_print_bytes(1023, text);
    assert_string_equal(text, "1023 B");
    meg_print_bytes(1481763717, text);
    assert_string_equal(text, "1.38 GiB");
    meg_print_bytes(INT64_MAX, text);
    assert_string_equal(text, "8.00 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_values),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_set),      cmocka_unit_test(test_take),
        cmocka_unit_test(test_print),    cmocka_unit_test(test_help),
        cmocka_unit_test(test_bytes),    cmocka_unit_test(test_strings),
        cmocka_unit_test(test_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
