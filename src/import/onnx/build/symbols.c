/* The symbols of an ONNX file, by their names: a hash table, filled before anything else is looked at. */
#include "base/random.h"
#include "import/onnx/build/build.h"

static uint64_t hash(meg_bytes s)
{
    return meg_hash_bytes(meg_hash(""), s.at, (size_t)(s.end - s.at));
}

/* The place of a name, or the free one where it would go. */
static int *place_of(const meg_onnx_build *b, meg_bytes name)
{
    size_t at = hash(name) & (b->places - 1);
    while (b->place[at] >= 0 && !meg_bytes_equal(b->symbol[b->place[at]].name, name))
        at = (at + 1) & (b->places - 1);
    return &b->place[at];
}

meg_onnx_symbol *meg_onnx_symbol_of(const meg_onnx_build *b, meg_bytes name)
{
    int at = *place_of(b, name);
    return at >= 0 ? &b->symbol[at] : NULL;
}

meg_status meg_onnx_define(meg_onnx_build *b, meg_bytes name, int maker,
                           const meg_onnx_tensor *constant)
{
    int *place = place_of(b, name);
    if (name.at == name.end) return MEG_OK; /* an output that nobody wants */
    MEG_CHECK(b->error, *place < 0 && b->symbols < b->symbol_room, MEG_EDATA,
              "%s: '%.*s' is made twice", b->file->path, MEG_SPAN_TEXT(name));
    b->symbol[b->symbols] = (meg_onnx_symbol){.name = name,
                                              .constant = constant,
                                              .value = -1,
                                              .front = -1,
                                              .parameter = -1,
                                              .maker = maker,
                                              .user = -1};
    *place = b->symbols++;
    return MEG_OK;
}

meg_status meg_onnx_name_all(meg_onnx_build *b)
{
    meg_onnx_file *f = b->file;
    size_t count = f->tensors + f->inputs, outputs = 0;
    for (size_t i = 0; i < f->nodes; i++)
        outputs += (size_t)f->node[i].outputs;
    count += outputs +
             3 * f->nodes; /* those that PyTorch merged are parted again; what readers make up */
    b->symbol_room = (int)count + 1;
    for (b->places = 16; b->places < 2 * count; b->places *= 2)
        continue;
    b->symbol = meg_pool_alloc(f->pool, (count + 1) * sizeof *b->symbol);
    b->place = meg_pool_alloc(f->pool, b->places * sizeof *b->place);
    for (size_t i = 0; i < b->places; i++)
        b->place[i] = -1;
    for (size_t i = 0; i < f->tensors; i++)
        MEG_TRY(b->error, meg_onnx_define(b, f->tensor[i].name, -1, &f->tensor[i]));
    for (size_t i = 0; i < f->inputs; i++) /* those with a default are constants (IR 3) */
        if (*place_of(b, f->input[i].name) < 0)
            MEG_TRY(b->error, meg_onnx_define(b, f->input[i].name, -1, NULL));
    for (size_t i = 0; i < f->nodes; i++)
        for (int k = 0; k < f->node[i].outputs; k++)
            MEG_TRY(b->error, meg_onnx_define(b, f->node[i].out[k], (int)i, NULL));
    return MEG_OK;
}

meg_onnx_symbol *meg_onnx_in(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    if (i >= n->inputs || n->in[i].at == n->in[i].end) return NULL;
    return meg_onnx_symbol_of(b, n->in[i]);
}

const meg_onnx_node *meg_onnx_after(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[0]);
    return s && s->uses == 1 && s->user >= 0 ? &b->file->node[s->user] : NULL;
}

meg_onnx_symbol *meg_onnx_owner(const meg_onnx_build *b, meg_onnx_symbol *s)
{
    return s->of ? meg_onnx_symbol_of(b, s->of->name) : s;
}
