/* What an initializer is: a parameter, a buffer or a constant, and what it was called.
 *
 *     this framework's files    a note of the graph, "megalith.kinds": kind, extents, name
 *     PyTorch, torch.export     signature and notes: torch.c
 *     PyTorch, TorchScript      nothing: what has a name is taken for a parameter, what nodes make
 *                               (Constant) is none
 *     others                    nothing: an initializer of more than one number is a parameter
 */
#include "graph/freeze.h"
#include "import/onnx/build/kinds.h"
#include "import/onnx/wire/texts.h"

/* "3x8", or "-" of a single number: are these the extents of so many? */
static bool read_extents(meg_bytes text, int64_t count, meg_onnx_said *out)
{
    int64_t size = 1;
    if (meg_bytes_is(text, "-")) return count == 1;
    while (text.at < text.end && out->rank < MEG_AXES) {
        int64_t extent = 0;
        for (; text.at < text.end && *text.at != 'x'; text.at++) {
            if (*text.at < '0' || *text.at > '9' || extent > count) return false;
            extent = 10 * extent + (*text.at - '0');
        }
        if (extent < 1 || size > count / extent) return false;
        out->dims[out->rank++] = extent;
        size *= extent;
        if (text.at < text.end) text.at++;
    }
    return text.at == text.end && size == count;
}

/* "parameter 3x8 turned fc.weight": kind, extents, order, name; see import/onnx/write/write.c. */
static void read_own(const meg_onnx_build *b, meg_bytes text)
{
    meg_bytes line;
    while (meg_next_line(&text, &line)) {
        meg_bytes kind = meg_next_word(&line), dims = meg_next_word(&line),
                  order = meg_next_word(&line);
        meg_onnx_said *said = meg_pool_alloc(b->file->pool, sizeof *said);
        if (line.at < line.end) line.at++;
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, line);
        if (!meg_onnx_is_initializer(s)) continue;
        s->kind = meg_bytes_is(kind, "parameter") || meg_bytes_is(kind, "state")
                      ? MEG_ONNX_PARAMETER
                  : meg_bytes_is(kind, "fixed") ? MEG_ONNX_BUFFER
                                                : MEG_ONNX_CONSTANT;
        s->unsaved = s->kind == MEG_ONNX_CONSTANT;
        said->turned = meg_bytes_is(order, "turned");
        if (read_extents(dims, s->constant->size, said)) s->said = said;
    }
}

meg_status meg_onnx_find_kinds(meg_onnx_build *b)
{
    meg_bytes own = meg_onnx_graph_note(b->file, "megalith.kinds");
    meg_bytes sign = meg_onnx_graph_note(b->file,
                                         "pkg.torch.export.ExportedProgram.graph_signature");
    if (own.at < own.end) read_own(b, own);
    else if (sign.at < sign.end) return meg_onnx_read_exported(b, sign);
    else if (meg_bytes_is(b->file->producer, "pytorch")) meg_onnx_read_script(b);
    return MEG_OK;
}

/* A weight or bias beside its like: a layer's, surely. */
static bool is_layers(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    meg_bytes name = meg_onnx_weight_name(s);
    static const char *const tails[] = {".weight", ".bias"};
    for (int i = 0; i < 2; i++) {
        if (!meg_ends(name, tails[i])) continue;
        int head = (int)(meg_bytes_bytes(name) - (int64_t)strlen(tails[i]));
        const char *other = meg_pool_text(b->file->pool, "%.*s%s", head, (const char *)name.at,
                                          tails[1 - i]);
        const meg_onnx_symbol *like = meg_onnx_symbol_of(b, meg_text_span(other));
        if (s->folded) return true;
        return meg_onnx_is_initializer(like) && like->constant->size == s->constant->size;
    }
    return false;
}

/* Is it trained only because the file does not say that it is not? */
static bool is_doubtful(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    return s->parameter >= 0 && s->doubtful && !is_layers(b, s);
}

meg_status meg_onnx_choose(meg_onnx_build *b)
{
    bool *doubtful = meg_pool_alloc(b->file->pool, (size_t)b->graph->values + 1);
    for (int i = 0; i < b->symbols; i++)
        if (is_doubtful(b, &b->symbol[i])) doubtful[b->symbol[i].parameter] = true;
    const meg_freezing choice = {b->options.freeze, b->options.train, doubtful};
    return meg_graph_choose(b->graph, b->error, &choice);
}

void meg_onnx_tell_kinds(meg_onnx_build *b)
{
    meg_onnx_names doubtful = {0};
    for (int i = 0; i < b->symbols; i++) {
        const meg_onnx_symbol *s = &b->symbol[i];
        const meg_value *v = s->parameter >= 0 ? &b->graph->value[s->parameter] : NULL;
        bool trained = v && v->kind == MEG_PARAMETER;
        if (trained && is_doubtful(b, s) && !meg_names_match(b->options.train, v->name))
            meg_onnx_list_name(b, &doubtful, meg_text_span(v->name));
        bool fused = b->folded && meg_begins(s->name, "onnx::Conv"); /* that is told already */
        if (trained && s->guessed && !fused && meg_onnx_nameless(meg_text_span(v->name)))
            meg_onnx_list_name(b, &b->lost, s->name);
    }
    const char *more = doubtful.count > 8 ? ", .." : "";
    if (doubtful.count)
        meg_onnx_warn(
            b, "the file does not say whether %s%s %s trained: %s, unless --freeze names %s",
            doubtful.text, more, doubtful.count == 1 ? "is" : "are",
            doubtful.count == 1 ? "it is" : "they are", doubtful.count == 1 ? "it" : "them");
    if (b->counted.count)
        meg_onnx_warn(
            b,
            "%s%s: computed of parameters when the file was written, and trained in their "
            "stead: training will differ; export with optimize=False",
            b->counted.text, b->counted.count > 8 ? ", .." : "");
    if (b->lost.count)
        meg_onnx_warn(
            b, "%d weights have lost their names: %s%s; do_constant_folding=False keeps them",
            b->lost.count, b->lost.text, b->lost.count > 8 ? ", .." : "");
    if (b->reshaped.count)
        meg_onnx_warn(b,
                      "of %s%s a part or another shape is trained, under a name of its own: files "
                      "of weights do not fit the model's",
                      b->reshaped.text, b->reshaped.count > 8 ? ", .." : "");
    if (b->missing.count && !b->folded)
        meg_onnx_warn(
            b,
            "%d parameters of the model are not in the file: %s%s; unless they are tied or "
            "unused, PyTorch's optimizer merged them with others that began alike: such are "
            "trained as one, training will differ; export with optimize=False",
            b->missing.count, b->missing.text, b->missing.count > 8 ? ", .." : "");
}
