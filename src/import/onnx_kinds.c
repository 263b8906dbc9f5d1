/* What an initializer is: a parameter, a buffer or a constant, and what it was called.
 *
 *     this framework's files    a note of the graph, "megalith.kinds": kind, extents, name
 *     PyTorch, torch.export     the graph's signature lists all parameters and buffers by name, and
 *                               each value's notes say which others it was folded from
 *     PyTorch, TorchScript      nothing: what has a name is taken for a parameter, what nodes make
 *                               (Constant) is none
 *     others                    nothing: an initializer of more than one number is a parameter
 *
 * PyTorch's optimizer turns weights of dense layers, and puts axes to those of group norms, under new
 * names (val_36). What such a tensor was folded from gives it its name back; failing that, the module
 * of the node that reads it, if the signature has a parameter there that is missing.
 */
#include "graph/freeze.h"
#include "import/onnx_fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct target { /* a line of the signature */
    meg_span name;
    meg_onnx_kind kind;
    bool unsaved; /* a buffer that is not persistent, a constant */
    bool found;   /* there is an initializer for it */
} target;

typedef struct signature {
    target *at;
    size_t count, room;
} signature;

/* ---- texts ---- */

static meg_span text_span(const char *text)
{
    return (meg_span){(const uint8_t *)text, (const uint8_t *)text + strlen(text)};
}

static bool begins(meg_span s, const char *head)
{
    size_t length = strlen(head);
    return (size_t)meg_span_bytes(s) >= length && memcmp(s.at, head, length) == 0;
}

static bool ends(meg_span s, const char *tail)
{
    size_t length = strlen(tail);
    return (size_t)meg_span_bytes(s) >= length && memcmp(s.end - length, tail, length) == 0;
}

/* Cuts the next line off. */
static bool next_line(meg_span *text, meg_span *line)
{
    if (text->at >= text->end) return false;
    const uint8_t *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
    if (!end) end = text->end;
    *line = (meg_span){text->at, end};
    text->at = end < text->end ? end + 1 : end;
    return true;
}

/* Cuts the next word off, up to a blank. */
static meg_span next_word(meg_span *line)
{
    while (line->at < line->end && *line->at == ' ')
        line->at++;
    meg_span word = {line->at, line->at};
    while (line->at < line->end && *line->at != ' ')
        line->at++;
    word.end = line->at;
    return word;
}

/* Cuts the next text between single quotes off. */
static bool next_quoted(meg_span *s, meg_span *out)
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

bool meg_onnx_nameless(meg_span s)
{
    return begins(s, "val_") || begins(s, "onnx::");
}

/* ---- PyTorch's signature ---- */

static int by_name(const void *a, const void *b)
{
    meg_span x = ((const target *)a)->name, y = ((const target *)b)->name;
    int64_t n = meg_span_bytes(x), m = meg_span_bytes(y);
    int order = memcmp(x.at, y.at, (size_t)(n < m ? n : m));
    return order ? order : n < m ? -1 : n > m;
}

static target *target_of(const signature *s, meg_span name)
{
    target key = {.name = name};
    return s->count ? bsearch(&key, s->at, s->count, sizeof key, by_name) : NULL;
}

static meg_onnx_kind kind_of(meg_span word)
{
    if (meg_span_is(word, "PARAMETER")) return MEG_ONNX_PARAMETER;
    return meg_span_is(word, "BUFFER") ? MEG_ONNX_BUFFER : MEG_ONNX_CONSTANT;
}

/* "p_conv_weight: PARAMETER target='conv.weight'", "b_mean: BUFFER target='mean' persistent=True" */
static void read_signature(meg_span text, signature *out)
{
    meg_span line;
    while (next_line(&text, &line) && !begins(line, "# outputs")) {
        target t = {.kind = MEG_ONNX_UNSAID};
        next_word(&line);
        t.kind = kind_of(next_word(&line));
        if (!next_quoted(&line, &t.name)) continue;
        t.unsaved = t.kind == MEG_ONNX_CONSTANT || ends(line, "persistent=False");
        out->at = meg_grow(out->at, &out->room, out->count + 1, sizeof t);
        out->at[out->count++] = t;
    }
    if (out->count) qsort(out->at, out->count, sizeof *out->at, by_name);
}

static bool is_initializer(const meg_onnx_symbol *s)
{
    return s && s->constant && s->maker < 0;
}

static void take_target(meg_onnx_symbol *s, target *t)
{
    s->kind = t->kind;
    s->unsaved = t->unsaved;
    s->label = t->name;
    t->found = true;
}

/* ---- what was folded ---- */

/* Values that torch.export names after what only moves axes; "val_8" is inside of such a step. */
static bool only_moves(meg_span name)
{
    static const char *const heads[] = {"val_",    "view",      "reshape",  "unsqueeze", "squeeze",
                                        "permute", "transpose", "t_",       "clone",     "detach",
                                        "alias",   "numpy_t",   "_to_copy", "to_"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (begins(name, heads[i])) return true;
    return meg_span_is(name, "t");
}

static bool mirrored(const meg_onnx_tensor *a, const meg_onnx_tensor *b)
{
    return a->rank == 2 && b->rank == 2 && a->dims[0] == b->dims[1] && a->dims[1] == b->dims[0];
}

/* A tensor that is still there as well: the same weight, tied. False: it is another one. */
static bool tie(const meg_onnx_build *b, meg_onnx_symbol *s, meg_span name)
{
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, name);
    if (!is_initializer(other) || !mirrored(s->constant, other->constant)) return false;
    s->constant = other->constant;
    s->turned = true;
    s->of = other;
    return true;
}

/* Operators whose weights exporters turn, or put axes to. What a convolution got another name for had a
 * batch norm folded in: it is no more what it was called. */
static bool moves_weights(const meg_onnx_node *n)
{
    static const char *const ops[] = {"MatMul", "Mul", "Add", "Sub", "Div", "PRelu"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (meg_span_is(n->op, ops[i])) return true;
    return false;
}

/* By the note which values went into it: one of them, at most, is a parameter or buffer. */
static void read_folded(const meg_onnx_build *b, const signature *sign, meg_onnx_symbol *s,
                        meg_span note)
{
    target *from = NULL;
    meg_span word;
    int count = 0;
    bool moves = only_moves(s->name);
    while (next_quoted(&note, &word)) {
        target *t = target_of(sign, word);
        moves = moves && (t || only_moves(word));
        if (!t || t->kind == MEG_ONNX_CONSTANT) continue;
        count += t != from;
        if (!from || t->kind == MEG_ONNX_PARAMETER) from = t;
    }
    if (!from) return;
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, from->name);
    if (from->kind != MEG_ONNX_PARAMETER && (count > 1 || !moves)) return; /* computed of buffers */
    if (count == 1 && moves && is_initializer(other) && tie(b, s, from->name)) return;
    bool lone = count == 1 && moves && !is_initializer(other);
    s->kind = from->kind;
    s->computed = from->found = !lone;
    if (!lone) return;
    take_target(s, from);
    s->folded = s->user >= 0 && moves_weights(&b->file->node[s->user]);
}

static void read_notes(const meg_onnx_build *b, const signature *sign)
{
    for (size_t i = 0; i < b->file->infos; i++) {
        const meg_onnx_info *info = &b->file->info[i];
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, info->name);
        if (!is_initializer(s) || s->label.at) continue;
        meg_span kind = meg_onnx_info_note(info, "pkg.torch.export.graph_signature.InputSpec.kind");
        if (kind.at < kind.end) s->kind = kind_of(kind), s->label = s->name;
        else
            read_folded(b, sign, s,
                        meg_onnx_info_note(info, "pkg.onnxscript.optimizer.folded_from"));
    }
}

/* ---- names by modules ---- */

/* "/layer1/layer1.0/conv1/Conv" -> "layer1.0.conv1" */
static const char *script_module(const meg_onnx_build *b, meg_span name)
{
    const char *path = "", *last = "";
    if (name.at >= name.end || *name.at != '/') return NULL;
    name.at++;
    for (;;) {
        const uint8_t *end = memchr(name.at, '/', (size_t)(name.end - name.at));
        if (!end) return *path ? path : NULL;
        meg_span part = {name.at, end};
        size_t length = strlen(last);
        bool longer = length && begins(part, last) && (size_t)meg_span_bytes(part) > length &&
                      part.at[length] == '.';
        int kept = (int)(strlen(path) - (longer ? length : 0));
        last = meg_pool_text(b->file->pool, "%.*s", MEG_SPAN_TEXT(part));
        path = meg_pool_text(b->file->pool, "%.*s%s%s", kept, path, *path && !longer ? "." : "",
                             last);
        name.at = end + 1;
    }
}

/* Which input the symbol is; -1: none, or several. */
static int place_in(const meg_onnx_node *n, meg_span name)
{
    int at = -1;
    for (int i = 0; i < n->inputs; i++)
        if (meg_span_equal(n->in[i], name)) at = at < 0 ? i : n->inputs;
    return at < n->inputs ? at : -1;
}

/* "fc.bias", which the Add behind a MatMul adds: then the matrix is "fc.weight". */
static const char *beside_bias(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_node *add = meg_onnx_after(b, n);
    for (int i = 0; add && meg_span_is(add->op, "Add") && i < add->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_symbol_of(b, add->in[i]);
        if (!is_initializer(s) || !ends(s->name, ".bias")) continue;
        meg_span module = {s->name.at, s->name.end - strlen(".bias")};
        return meg_pool_text(b->file->pool, "%.*s", MEG_SPAN_TEXT(module));
    }
    return NULL;
}

/* What the weight of this node may have been called; empty: who knows. */
static meg_span guess_name(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    const meg_onnx_node *n = s->uses == 1 && s->user >= 0 ? &b->file->node[s->user] : NULL;
    meg_span none = {NULL, NULL};
    if (!n || !moves_weights(n)) return none;
    int place = place_in(n, s->name);
    bool product = meg_span_is(n->op, "MatMul");
    const char *module = product ? beside_bias(b, n) : NULL;
    if (!module) module = meg_onnx_torch_scope(b, n);
    if (!module) module = script_module(b, n->name);
    if (!module || place < 0 || (product && place != 1)) return none;
    bool bias = meg_span_is(n->op, "Add") || place == 2;
    return text_span(meg_pool_text(b->file->pool, "%s.%s", module, bias ? "bias" : "weight"));
}

/* Initializers that neither the signature nor a note knows are constants, unless their module misses
 * a parameter. */
static void match_modules(meg_onnx_build *b, const signature *sign)
{
    for (int i = 0; i < b->symbols; i++) {
        meg_onnx_symbol *s = &b->symbol[i];
        if (!is_initializer(s) || s->kind != MEG_ONNX_UNSAID || s->of) continue;
        meg_span name = meg_onnx_nameless(s->name) ? guess_name(b, s) : (meg_span){NULL, NULL};
        target *t = name.at ? target_of(sign, name) : NULL;
        bool missing = t && !t->found && t->kind == MEG_ONNX_PARAMETER;
        s->kind = MEG_ONNX_CONSTANT;
        s->unsaved = true;
        if (!missing) continue;
        take_target(s, t);
        s->folded = true;
    }
}

/* ---- files ---- */

static void list_missing(meg_onnx_build *b, const signature *sign)
{
    for (size_t i = 0; i < sign->count; i++)
        if (sign->at[i].kind == MEG_ONNX_PARAMETER && !sign->at[i].found)
            meg_onnx_list_name(b, &b->missing, sign->at[i].name);
}

static void read_exported(meg_onnx_build *b, meg_span text)
{
    signature sign = {0};
    read_signature(text, &sign);
    for (size_t i = 0; i < sign.count; i++) {
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, sign.at[i].name);
        if (is_initializer(s)) take_target(s, &sign.at[i]);
    }
    read_notes(b, &sign);
    match_modules(b, &sign);
    for (int i = 0; i < b->symbols; i++) {
        const meg_onnx_symbol *s = &b->symbol[i];
        if (s->computed) meg_onnx_list_name(b, &b->counted, s->name);
    }
    list_missing(b, &sign);
    free(sign.at);
}

static bool is_slope(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    return s->user >= 0 && meg_span_is(b->file->node[s->user].op, "PRelu");
}

/* TorchScript: names are all there is. What has lost its own was a weight whose axes were moved, if
 * its module can be told; else it stays doubtful. */
static void read_script(meg_onnx_build *b)
{
    for (int i = 0; i < b->symbols; i++) {
        meg_onnx_symbol *s = &b->symbol[i];
        if (!is_initializer(s)) continue;
        bool nameless = meg_onnx_nameless(s->name);
        bool number = nameless && s->constant->size == 1 && !is_slope(b, s);
        s->kind = number ? MEG_ONNX_CONSTANT : MEG_ONNX_PARAMETER;
        s->guessed = true;
        if (!nameless || number) continue;
        meg_span name = guess_name(b, s);
        if (!name.at || is_initializer(meg_onnx_symbol_of(b, name))) continue;
        s->label = name;
        s->folded = true;
    }
}

/* "parameter 3x8 turned fc.weight": kind, extents, order, name; see onnx_write.c. */
static void read_own(const meg_onnx_build *b, meg_span text)
{
    meg_span line;
    while (next_line(&text, &line)) {
        meg_span kind = next_word(&line), dims = next_word(&line), order = next_word(&line);
        meg_onnx_said *said = meg_pool_alloc(b->file->pool, sizeof *said);
        if (line.at < line.end) line.at++;
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, line);
        if (!is_initializer(s)) continue;
        s->kind = meg_span_is(kind, "parameter") || meg_span_is(kind, "state") ? MEG_ONNX_PARAMETER
                  : meg_span_is(kind, "fixed")                                 ? MEG_ONNX_BUFFER
                                                                               : MEG_ONNX_CONSTANT;
        s->unsaved = s->kind == MEG_ONNX_CONSTANT;
        said->turned = meg_span_is(order, "turned");
        int64_t size = 1, extent = 0;
        bool good = true;
        for (; dims.at < dims.end && *dims.at != '-'; dims.at++) {
            if (*dims.at != 'x') extent = 10 * extent + (*dims.at - '0');
            good = good && extent >= 0 && extent <= s->constant->size && said->rank < MEG_AXES;
            bool last = dims.at + 1 == dims.end || dims.at[1] == 'x';
            if (!good) break;
            if (*dims.at == 'x' || !last) continue;
            said->dims[said->rank++] = extent;
            size *= extent;
            extent = 0;
        }
        if (good && size == s->constant->size) s->said = said;
    }
}

void meg_onnx_find_kinds(meg_onnx_build *b)
{
    meg_span own = meg_onnx_graph_note(b->file, "megalith.kinds");
    meg_span sign = meg_onnx_graph_note(b->file,
                                        "pkg.torch.export.ExportedProgram.graph_signature");
    if (own.at < own.end) read_own(b, own);
    else if (sign.at < sign.end) read_exported(b, sign);
    else if (meg_span_is(b->file->producer, "pytorch")) read_script(b);
}

/* ---- for readers ---- */

static const meg_onnx_symbol *root_of(const meg_onnx_symbol *s)
{
    return s->of ? s->of : s;
}

bool meg_onnx_is_weight(const meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    const meg_onnx_symbol *root = root_of(s);
    bool whole = t && (t->type == MEG_ONNX_INT64 || t->type == MEG_ONNX_INT32 ||
                       t->type == MEG_ONNX_BOOL);
    if (!t || whole) return false;
    if (s->trained || root->trained) return true;
    if (root->kind != MEG_ONNX_UNSAID) return root->kind == MEG_ONNX_PARAMETER;
    return t->size > 1 && root->maker < 0;
}

bool meg_onnx_is_buffer(const meg_onnx_symbol *s)
{
    return root_of(s)->kind == MEG_ONNX_BUFFER && !root_of(s)->unsaved;
}

bool meg_onnx_is_fused(const meg_onnx_node *n)
{
    return begins(meg_onnx_note(n, "pkg.onnxscript.rewriter.rule_name"), "FuseBatchNorm");
}

/* Masks of minus infinity are no weights, whatever they are called. */
void meg_onnx_doubt(meg_onnx_build *b, meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    if (!s->guessed && s->kind != MEG_ONNX_UNSAID) return;
    s->doubtful = s->guessed;
    b->computed += t->size;
    for (int64_t i = 0; i < t->size && s->kind != MEG_ONNX_CONSTANT; i++)
        if (!isfinite(meg_onnx_number(t, i))) s->kind = MEG_ONNX_CONSTANT, s->unsaved = true;
}

/* A weight or bias beside its like: a layer's, surely. */
static bool is_layers(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    meg_span name = s->label.at ? s->label : s->name;
    static const char *const tails[] = {".weight", ".bias"};
    for (int i = 0; i < 2; i++) {
        if (!ends(name, tails[i])) continue;
        int head = (int)(meg_span_bytes(name) - (int64_t)strlen(tails[i]));
        const char *other = meg_pool_text(b->file->pool, "%.*s%s", head, (const char *)name.at,
                                          tails[1 - i]);
        const meg_onnx_symbol *like = meg_onnx_symbol_of(b, text_span(other));
        if (s->folded) return true;
        return is_initializer(like) && like->constant->size == s->constant->size;
    }
    return false;
}

void meg_onnx_list_name(meg_onnx_build *b, meg_onnx_names *list, meg_span name)
{
    enum {
        MOST_NAMES = 8
    };
    if (list->count++ >= MOST_NAMES) return;
    list->text = meg_pool_text(b->file->pool, "%s%s%.*s", list->text ? list->text : "",
                               list->text ? ", " : "", MEG_SPAN_TEXT(name));
}

void meg_onnx_tell_kinds(meg_onnx_build *b)
{
    meg_onnx_names doubtful = {0};
    for (int i = 0; i < b->symbols; i++) {
        const meg_onnx_symbol *s = &b->symbol[i];
        const meg_value *v = s->parameter >= 0 ? &b->graph->value[s->parameter] : NULL;
        bool trained = v && v->kind == MEG_PARAMETER;
        if (trained && s->doubtful && !is_layers(b, s) &&
            !meg_names_match(b->options.train, v->name))
            meg_onnx_list_name(b, &doubtful, text_span(v->name));
        bool fused = b->folded && begins(s->name, "onnx::Conv"); /* that is told already */
        if (trained && s->guessed && !fused && meg_onnx_nameless(text_span(v->name)))
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
    if (b->missing.count && !b->folded)
        meg_onnx_warn(b, "%d parameters of the model are not in the file: %s%s", b->missing.count,
                      b->missing.text, b->missing.count > 8 ? ", .." : "");
}
