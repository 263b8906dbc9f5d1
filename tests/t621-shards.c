/* safetensors in shards with an index: written and read back, found by folder, file or index; damaged
 * ones are refused; a trainer's weights go out so and come back.
 */
#include "safetensors_help.h"

static const char INDEX[] = "w.safetensors.index.json";

static void remove_all(scratch *s)
{
    scratch all = *s;
    scratch_free(&all); /* its files; the folder is made anew */
    assert_int_equal(mkdir(s->dir, 0777), 0);
}

/* A tensor at a time, in pieces of 5 bytes: what a source may do. */
static meg_status get_pieces(void *context, const meg_saved *t, meg_saved_put *give, void *to)
{
    int64_t bytes = bytes_of(t);
    *(int *)context += 1;
    for (int64_t i = 0; i < bytes; i += 5) {
        int64_t part = bytes - i < 5 ? bytes - i : 5;
        meg_status status = give(to, (const char *)t->data + i, part);
        if (status != MEG_OK) return status;
    }
    return MEG_OK;
}

static void write_shards(const char *path, int64_t limit)
{
    meg_error e;
    int asked = 0;
    meg_saved_file content = {COUNT, 2, TENSORS, NOTES};
    meg_saved_source source = {get_pieces, &asked};
    if (meg_safetensors_stream(&e, path, &content, &source, limit) != MEG_OK)
        fail_msg("%s", e.message);
    assert_int_equal(asked, COUNT);
}

/* 3 bytes, 24, 16, 12, 4, 0: with 28 at most, {3, 24}, {16, 12}, {4, 0}. */
static void test_shards(void **state)
{
    scratch *s = *state;
    remove_all(s);
    write_shards(scratch_path(s, NAME), 0);
    check_good(s->path);
    write_shards(scratch_path(s, NAME), 59); /* all of it */
    check_good(s->path);
    assert_int_equal(scratch_count(s), 1);

    write_shards(scratch_path(s, NAME), 28);
    assert_int_equal(scratch_count(s), 4); /* three, the index; the one file is gone */
    assert_int_not_equal(access(scratch_path(s, NAME), F_OK), 0);
    check_good(scratch_path(s, INDEX));
    check_good(scratch_path(s, NAME)); /* the index beside it serves */
    meg_safetensors *f = opened(scratch_path(s, "w-00002-of-00003.safetensors"));
    assert_int_equal(meg_safetensors_count(f), 2);
    assert_true(meg_safetensors_find(f, "int") >= 0);
    meg_safetensors_close(f);

    write_shards(scratch_path(s, "model.safetensors"), 1); /* one tensor each, however large */
    assert_int_equal(scratch_count(s), 4 + 7);
    check_good(s->dir); /* a folder */
    remove_all(s);
    refused(s->dir, MEG_EARG, "is a folder without model.safetensors");
    write_good(scratch_path(s, "model.safetensors"));
    check_good(s->dir);
    remove_all(s);
}

/* A source that gives too little, too much, or fails leaves everything as it was. */
static meg_status get_wrong(void *context, const meg_saved *t, meg_saved_put *give, void *to)
{
    meg_error e;
    int64_t bytes = bytes_of(t) + *(int *)context;
    if (strcmp(t->name, "int") == 0) return give(to, t->data, bytes);
    if (*(int *)context == 0) return meg_fail(&e, MEG_ENAN, "spoilt");
    return give(to, t->data, bytes_of(t));
}

static void test_bad_source(void **state)
{
    scratch *s = *state;
    remove_all(s);
    write_good(scratch_path(s, NAME));
    meg_saved_file content = {COUNT, 2, TENSORS, NOTES};
    static const meg_status want[] = {MEG_EARG, MEG_ENAN, MEG_EARG};
    for (int more = -1; more <= 1; more++)
        for (int64_t limit = 0; limit < 30; limit += 28) {
            meg_error e = {0};
            meg_saved_source source = {get_wrong, &more};
            assert_int_equal(meg_safetensors_stream(&e, s->path, &content, &source, limit),
                             want[more + 1]);
            assert_int_equal(scratch_count(s), 1);
            check_good(s->path);
        }
}

typedef struct bad_index {
    const char *text, *message;
    meg_status status;
} bad_index;

#define MAP(pairs) "{\"metadata\":{\"total_size\":[1,{\"x\":\"}\"}]},\"weight_map\":{" pairs "}}"

static const bad_index BAD_INDEX[] = {
    {" ", "expected '{'", MEG_EDATA},
    {"{}", "expected weight_map", MEG_EDATA},
    {"{\"metadata\":{}}", "a weight_map before here", MEG_EDATA},
    {"{\"metadata\":{", "a value", MEG_EDATA},
    {"{\"metadata\":,\"weight_map\":{}}", "a value", MEG_EDATA},
    {"{\"weight_map\":{},\"weight_map\":{}}", "weight_map only once", MEG_EDATA},
    {"{\"weight_map\":[]}", "an object of file names", MEG_EDATA},
    {"{\"weight_map\":{\"a\":1}}", "the name of a file", MEG_EDATA},
    {"{\"weight_map\":{}} x", "nothing after the object", MEG_EDATA},
    {MAP("\"bytes\":\"gone.safetensors\""), "shard gone.safetensors is missing: cannot open",
     MEG_EIO},
    {MAP("\"bytes\":\"1.safetensors\",\"bytes\":\"2.safetensors\""),
     "tensor 'bytes' is in two shards, 1.safetensors and 2.safetensors", MEG_EDATA},
    {MAP("\"scalar\":\"1.safetensors\",\"bytes\":\"2.safetensors\""),
     "tensor 'bytes' is in two shards, 2.safetensors and 1.safetensors", MEG_EDATA},
    {MAP("\"bytes\":\"1.safetensors\",\"nothing\":\"1.safetensors\""),
     "tensor 'nothing' is not in 1.safetensors", MEG_EDATA},
    {MAP("\"bytes\":\"../1.safetensors\""), "a file of the index's own folder", MEG_EDATA},
    {MAP("\"bytes\":\"/etc/passwd\""), "a file of the index's own folder", MEG_EDATA},
    {MAP("\"bytes\":\"..\""), "a file of the index's own folder", MEG_EDATA},
    {MAP("\"bytes\":\"\""), "a file of the index's own folder", MEG_EDATA},
    {MAP("\"bytes\":\"w.safetensors.index.json\""), "is no safetensors file", MEG_EDATA},
};

static void test_bad_index(void **state)
{
    scratch *s = *state;
    remove_all(s);
    write_good(scratch_path(s, "1.safetensors"));
    write_good(scratch_path(s, "2.safetensors"));
    for (size_t i = 0; i < sizeof BAD_INDEX / sizeof *BAD_INDEX; i++) {
        const bad_index *b = &BAD_INDEX[i];
        refused(scratch_write(s, INDEX, b->text, strlen(b->text)), b->status, b->message);
    }
    refused(scratch_write(s, INDEX, "", 0), MEG_EDATA, "is empty");
    const char *some = MAP("\"bytes\":\"1.safetensors\",\"int\":\"1.safetensors\"");
    meg_safetensors *f = opened(scratch_write(s, INDEX, some, strlen(some)));
    assert_int_equal(meg_safetensors_count(f), 2); /* what the index does not have is not seen */
    meg_safetensors_close(f);
    remove_all(s);
}

/* Weights of a network go out as shards and come back the same. */
typedef struct run {
    meg_context *ctx;
    meg_graph *graph;
    meg_data *data;
    meg_plan *plan;
    meg_trainer *trainer;
} run;

static run train_new(const char *context, const char *options)
{
    run r = {0};
    assert_int_equal(meg_open(context, &r.ctx), MEG_OK);
    assert_int_equal(meg_graph_model(r.ctx, "cnn", "image=1x16x16", &r.graph), MEG_OK);
    assert_int_equal(meg_data_open(r.ctx, "synthetic:image=1x16x16 classes=10 count=8", &r.data),
                     MEG_OK);
    assert_int_equal(meg_plan_new(r.graph, r.data, "batch=4", &r.plan), MEG_OK);
    if (meg_trainer_new(r.plan, r.data, options, &r.trainer) != MEG_OK)
        fail_msg("%s", meg_message(r.ctx));
    return r;
}

static void train_free(run *r)
{
    meg_trainer_free(r->trainer);
    meg_plan_free(r->plan);
    meg_data_free(r->data);
    meg_graph_free(r->graph);
    meg_close(r->ctx);
}

static void check_same(const char *one, const char *other)
{
    meg_error e;
    meg_saved x, y;
    meg_safetensors *a = opened(one), *b = opened(other);
    assert_true(meg_safetensors_count(a) > 3);
    assert_int_equal(meg_safetensors_count(a), meg_safetensors_count(b));
    for (int i = 0; i < meg_safetensors_count(a); i++) {
        assert_int_equal(meg_safetensors_at(a, &e, i, &x), MEG_OK);
        assert_int_equal(meg_safetensors_at(b, &e, i, &y), MEG_OK);
        assert_string_equal(x.name, y.name);
        assert_memory_equal(x.data, y.data, (size_t)bytes_of(&x));
    }
    meg_safetensors_close(a);
    meg_safetensors_close(b);
}

static void test_trainer_shards(void **state)
{
    scratch *s = *state;
    char one[600], shards[600], again[600];
    snprintf(one, sizeof one, "%s/one.safetensors", s->dir);
    snprintf(shards, sizeof shards, "%s/model.safetensors", s->dir);
    snprintf(again, sizeof again, "%s/again.safetensors", s->dir);
    remove_all(s);
    run plain = train_new("device=ref seed=1", ""), other = train_new("device=ref seed=2", ""),
        sharded = train_new("device=ref seed=1", "shard=4KB");
    assert_int_equal(meg_trainer_save(plain.trainer, one), MEG_OK);
    assert_int_equal(meg_trainer_save(sharded.trainer, shards), MEG_OK);
    assert_true(scratch_count(s) > 3);
    check_same(one, s->dir);
    if (meg_trainer_load(other.trainer, s->dir) != MEG_OK) fail_msg("%s", meg_message(other.ctx));
    assert_int_equal(meg_trainer_save(other.trainer, again), MEG_OK);
    check_same(one, again);
    train_free(&plain);
    train_free(&other);
    train_free(&sharded);
    remove_all(s);
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_shards, &s),
        cmocka_unit_test_prestate(test_bad_source, &s),
        cmocka_unit_test_prestate(test_bad_index, &s),
        cmocka_unit_test_prestate(test_trainer_shards, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
