/* What PyTorch's exporters tell of initializers: see initializers.c.
 *
 * torch.export writes a signature, a line for each parameter and buffer of the model, and notes from
 * which values each tensor was folded. Its optimizer turns weights of dense layers, puts axes to those
 * of group norms, under new names (val_36), and merges tensors that begin with the same numbers. What
 * a tensor was folded from gives it its name back, and the call that a node comes from, which names its
 * arguments; failing that, the module of the node that reads it, if the signature has a parameter there
 * that is missing. The older exporter, TorchScript, writes names only.
 */
#include "import/onnx/build/kinds.h"
#include "import/onnx/wire/texts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

typedef struct target { /* a line of the signature */
    meg_bytes argument; /* what calls name it, p_conv_weight */
    meg_bytes name;     /* what the model does, conv.weight */
    meg_onnx_kind kind;
    bool unsaved;                  /* a buffer that is not persistent, a constant */
    bool found;                    /* there is an initializer for it, */
    meg_onnx_symbol *holder;       /* this one; NULL: that of another name, to which it is tied */
    const meg_onnx_symbol *merged; /* the tensor that it was parted from again; NULL: none */
    bool elsewhere;                /* a node of its module has another one in its place: tied */
    size_t line;                   /* of the signature: as the model has them */
} target;

typedef struct signature {
    target *at;
    target **called; /* sorted by argument */
    size_t count, room;
} signature;

/* ---- PyTorch's signature ---- */

static int order_of(meg_bytes x, meg_bytes y)
{
    int64_t n = meg_bytes_bytes(x), m = meg_bytes_bytes(y);
    int order = memcmp(x.at, y.at, (size_t)(n < m ? n : m));
    return order ? order : n < m ? -1 : n > m;
}

static int by_name(const void *a, const void *b)
{
    return order_of(((const target *)a)->name, ((const target *)b)->name);
}

static int by_argument(const void *a, const void *b)
{
    return order_of((*(target *const *)a)->argument, (*(target *const *)b)->argument);
}

static target *target_of(const signature *s, meg_bytes name)
{
    target key = {.name = name};
    return s->count ? bsearch(&key, s->at, s->count, sizeof key, by_name) : NULL;
}

static target *called_so(const signature *s, meg_bytes argument)
{
    const target key = {.argument = argument}, *at = &key;
    target **found = s->count ? bsearch(&at, s->called, s->count, sizeof at, by_argument) : NULL;
    return found ? *found : NULL;
}

static target *own_target(const signature *sign, const meg_onnx_symbol *s)
{
    return target_of(sign, meg_onnx_weight_name(s));
}

static meg_onnx_kind kind_of(meg_bytes word)
{
    if (meg_bytes_is(word, "PARAMETER")) return MEG_ONNX_PARAMETER;
    return meg_bytes_is(word, "BUFFER") ? MEG_ONNX_BUFFER : MEG_ONNX_CONSTANT;
}

/* "p_conv_weight: PARAMETER target='conv.weight'", "b_mean: BUFFER target='mean' persistent=True" */
static void read_signature(meg_pool *pool, meg_bytes text, signature *out)
{
    meg_bytes line;
    while (meg_next_line(&text, &line) && !meg_begins(line, "# outputs")) {
        target t = {.kind = MEG_ONNX_UNSAID};
        t.argument = meg_next_word(&line);
        if (meg_ends(t.argument, ":")) t.argument.end--;
        t.kind = kind_of(meg_next_word(&line));
        if (!meg_next_quoted(&line, &t.name)) continue;
        t.unsaved = t.kind == MEG_ONNX_CONSTANT || meg_ends(line, "persistent=False");
        t.line = out->count;
        out->at = meg_grow(out->at, &out->room, out->count + 1, sizeof t);
        out->at[out->count++] = t;
    }
    if (out->count) qsort(out->at, out->count, sizeof *out->at, by_name);
    out->called = meg_pool_alloc(pool, (out->count + 1) * sizeof *out->called);
    for (size_t i = 0; i < out->count; i++)
        out->called[i] = &out->at[i];
    if (out->count) qsort(out->called, out->count, sizeof *out->called, by_argument);
}

static void take_target(meg_onnx_symbol *s, target *t)
{
    s->kind = t->kind;
    s->unsaved = t->unsaved;
    s->label = t->name;
    t->found = true;
    t->holder = s;
}

/* Can it be what a node reads in the shape of s? It has no tensor of its own, or was parted from s. */
static bool lacks(const target *t, const meg_onnx_symbol *s)
{
    return t->kind == MEG_ONNX_PARAMETER && (!t->found || (s && t->merged == s));
}

/* ---- what was folded ---- */

/* Values that torch.export names after what only moves axes; "val_8" is inside of such a step. */
static bool only_moves(meg_bytes name)
{
    static const char *const heads[] = {"val_",    "view",      "reshape",  "unsqueeze", "squeeze",
                                        "permute", "transpose", "t_",       "clone",     "detach",
                                        "alias",   "numpy_t",   "_to_copy", "to_"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (meg_begins(name, heads[i])) return true;
    return meg_bytes_is(name, "t");
}

static bool mirrored(const meg_onnx_tensor *a, const meg_onnx_tensor *b)
{
    return a->rank == 2 && b->rank == 2 && a->dims[0] == b->dims[1] && a->dims[1] == b->dims[0];
}

/* A tensor that is still there as well: the same weight, tied. False: it is another one. */
static bool tie(const meg_onnx_build *b, meg_onnx_symbol *s, meg_bytes name)
{
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, name);
    if (!meg_onnx_is_initializer(other) || !mirrored(s->constant, other->constant)) return false;
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
        if (meg_bytes_is(n->op, ops[i])) return true;
    return false;
}

/* By the note which values went into it: one of them, at most, is a parameter or buffer. */
static void read_folded(const meg_onnx_build *b, const signature *sign, meg_onnx_symbol *s,
                        meg_bytes note)
{
    target *from = NULL;
    meg_bytes word;
    int count = 0;
    bool moves = only_moves(s->name);
    while (meg_next_quoted(&note, &word)) {
        target *t = target_of(sign, word);
        moves = moves && (t || only_moves(word));
        if (!t || t->kind == MEG_ONNX_CONSTANT) continue;
        count += t != from;
        if (!from || t->kind == MEG_ONNX_PARAMETER) from = t;
    }
    if (!from) return;
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, from->name);
    if (from->kind != MEG_ONNX_PARAMETER && (count > 1 || !moves)) return; /* computed of buffers */
    if (count == 1 && moves && meg_onnx_is_initializer(other) && tie(b, s, from->name)) return;
    bool lone = count == 1 && moves && !meg_onnx_is_initializer(other);
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
        if (!meg_onnx_is_initializer(s) || s->label.at) continue;
        meg_bytes kind = meg_onnx_info_note(info,
                                            "pkg.torch.export.graph_signature.InputSpec.kind");
        if (kind.at < kind.end) s->kind = kind_of(kind), s->label = s->name;
        else
            read_folded(b, sign, s,
                        meg_onnx_info_note(info, "pkg.onnxscript.optimizer.folded_from"));
    }
}

/* ---- names by modules ---- */

/* "/layer1/layer1.0/conv1/Conv" -> "layer1.0.conv1" */
static const char *script_module(const meg_onnx_build *b, meg_bytes name)
{
    const char *path = "", *last = "";
    if (name.at >= name.end || *name.at != '/') return NULL;
    name.at++;
    for (;;) {
        const uint8_t *end = memchr(name.at, '/', (size_t)(name.end - name.at));
        if (!end) return *path ? path : NULL;
        meg_bytes part = {name.at, end};
        size_t length = strlen(last);
        bool longer = length && meg_begins(part, last) && (size_t)meg_bytes_bytes(part) > length &&
                      part.at[length] == '.';
        int kept = (int)(strlen(path) - (longer ? length : 0));
        last = meg_pool_text(b->file->pool, "%.*s", MEG_SPAN_TEXT(part));
        path = meg_pool_text(b->file->pool, "%.*s%s%s", kept, path, *path && !longer ? "." : "",
                             last);
        name.at = end + 1;
    }
}

/* Which input the symbol is; -1: none, or several. */
static int place_in(const meg_onnx_node *n, meg_bytes name)
{
    int at = -1;
    for (int i = 0; i < n->inputs; i++)
        if (meg_bytes_equal(n->in[i], name)) at = at < 0 ? i : n->inputs;
    return at < n->inputs ? at : -1;
}

/* "fc.bias", which the Add behind a MatMul adds: then the matrix is "fc.weight". */
static const char *beside_bias(const meg_onnx_build *b, const meg_onnx_node *n)
{
    static const char bias[] = "bias";
    const meg_onnx_node *add = meg_onnx_after(b, n);
    for (int i = 0; add && meg_bytes_is(add->op, "Add") && i < add->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_symbol_of(b, add->in[i]);
        if (!meg_onnx_is_initializer(s) || !meg_ends(s->name, bias)) continue;
        meg_bytes module = {s->name.at, s->name.end - strlen(bias)};
        return meg_pool_text(b->file->pool, "%.*sweight", MEG_SPAN_TEXT(module));
    }
    return NULL;
}

/* What an input of a node is called in PyTorch, if its module has it under the usual names. */
static meg_bytes own_name(const meg_onnx_build *b, const meg_onnx_node *n, int place)
{
    const char *module = meg_onnx_torch_scope(b, n);
    if (!module) module = script_module(b, n->name);
    if (!module) return (meg_bytes){NULL, NULL};
    bool bias = meg_bytes_is(n->op, "Add") || place == 2;
    return meg_text_span(meg_pool_text(b->file->pool, "%s.%s", module, bias ? "bias" : "weight"));
}

/* What the weight of this node may have been called; empty: who knows. */
static meg_bytes guess_name(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    const meg_onnx_node *n = s->uses == 1 && s->user >= 0 ? &b->file->node[s->user] : NULL;
    meg_bytes none = {NULL, NULL};
    if (!n || !moves_weights(n)) return none;
    int place = place_in(n, s->name);
    bool product = meg_bytes_is(n->op, "MatMul");
    if (place < 0 || (product && place != 1)) return none;
    const char *beside = product ? beside_bias(b, n) : NULL;
    if (beside) return meg_text_span(beside);
    return own_name(b, n, place);
}

/* Initializers that neither the signature nor a note knows are constants, unless their module misses
 * a parameter. */
static void match_modules(meg_onnx_build *b, const signature *sign)
{
    for (int i = 0; i < b->symbols; i++) {
        meg_onnx_symbol *s = &b->symbol[i];
        if (!meg_onnx_is_initializer(s) || s->kind != MEG_ONNX_UNSAID || s->of) continue;
        meg_bytes name = meg_onnx_nameless(s->name) ? guess_name(b, s) : (meg_bytes){NULL, NULL};
        target *t = name.at ? target_of(sign, name) : NULL;
        bool missing = t && !t->found && t->kind == MEG_ONNX_PARAMETER;
        s->kind = MEG_ONNX_CONSTANT;
        s->unsaved = true;
        if (!missing) continue;
        take_target(s, t);
        s->folded = true;
    }
}

/* ---- what was merged ---- */

static bool uniform(const meg_onnx_tensor *t)
{
    for (int64_t i = 1; i < t->size; i++)
        if (fabs(meg_onnx_number(t, i) - meg_onnx_number(t, 0)) > 0) return false;
    return t->size > 0;
}

/* Cuts the next argument off a note, "%add : [num_users=1] = call_function[target=torch.ops.aten.add]
 * (args = (%x, %p_pos), kwargs = {})". The first is the result. */
static bool next_argument(meg_bytes *note, meg_bytes *out)
{
    while (note->at < note->end && *note->at != '%')
        note->at++;
    if (note->at >= note->end) return false;
    out->at = ++note->at;
    while (note->at < note->end && (isalnum(*note->at) || *note->at == '_'))
        note->at++;
    out->end = note->at;
    return true;
}

typedef struct call { /* what torch.export noted of the call that a node comes from */
    bool own;         /* it names what the tensor is called */
    int count;        /* parameters that it names beside that, and that the file lacks */
    target *other;    /* the one of them that the tensor is; NULL: who knows */
} call;

/* Which of the call's arguments s is, as input `place`: what it is called, or the one that the file
 * lacks; of several such the only weight or bias. */
static call call_of(const meg_onnx_build *b, const signature *sign, const meg_onnx_node *n,
                    int place, const meg_onnx_symbol *s)
{
    meg_bytes note = meg_onnx_note(n, "pkg.torch.onnx.fx_node"), word;
    const char *tail = meg_ends(own_name(b, n, place), ".bias") ? "bias" : "weight";
    const target *own = own_target(sign, s);
    target *any = NULL, *fit = NULL;
    int fits = 0;
    call c = {0};
    while (next_argument(&note, &word)) {
        target *t = called_so(sign, word);
        c.own = c.own || (t && t == own);
        if (!t || t == own || t == any || !lacks(t, s)) continue;
        any = t, c.count++;
        if (meg_ends(t->name, tail)) fit = t, fits++;
    }
    if (c.count == 1) c.other = any;
    if (c.count > 1 && fits == 1) c.other = fit;
    return c;
}

static bool starts(meg_bytes name, meg_bytes head)
{
    int64_t length = meg_bytes_bytes(head);
    return meg_bytes_bytes(name) >= length && memcmp(name.at, head.at, (size_t)length) == 0;
}

/* The one parameter missing whose name begins and ends so, without a module between them if it is to be
 * direct; NULL: none, or several. */
static target *only_one(const signature *sign, meg_bytes head, const char *tail, bool direct,
                        const meg_onnx_symbol *s)
{
    target *found = NULL;
    for (size_t i = 0; i < sign->count; i++) {
        target *t = &sign->at[i];
        if (!lacks(t, s) || !starts(t->name, head) || !meg_ends(t->name, tail)) continue;
        meg_bytes rest = {t->name.at + meg_bytes_bytes(head), t->name.end};
        if (direct && meg_contains(rest, ".")) continue;
        if (found) return NULL;
        found = t;
    }
    return found;
}

/* The parameter that the module of a node misses: its weight or bias, the only one of a name that ends so,
 * or, where another module's tensor is in its place, the only one. NULL: none, or several. */
static target *missing_of(const meg_onnx_build *b, const signature *sign, const meg_onnx_node *n,
                          int place, const meg_onnx_symbol *s)
{
    meg_bytes name = own_name(b, n, place);
    target *t = name.at ? target_of(sign, name) : NULL;
    if (t || !name.at) return t && lacks(t, s) ? t : NULL;
    const char *tail = meg_ends(name, ".bias") ? "bias" : "weight";
    meg_bytes head = {name.at, name.end - strlen(tail)};
    t = only_one(sign, head, tail, false, s);
    const target *own = s ? own_target(sign, s) : NULL;
    bool foreign = own && !starts(own->name, head);
    return t || !foreign ? t : only_one(sign, head, "", true, s);
}

/* Input `place` of a node becomes a parameter of the signature that the file does not have, with these
 * numbers, or has been made before. */
static meg_status give_own(meg_onnx_build *b, meg_onnx_node *n, int place, target *t,
                           const meg_onnx_tensor *numbers)
{
    if (!t->holder) {
        MEG_TRY(b->error, meg_onnx_define(b, t->name, -1, numbers));
        meg_onnx_symbol *own = meg_onnx_symbol_of(b, t->name);
        take_target(own, t);
        own->needed = true;
        own->user = (int)(n - b->file->node);
    }
    n->in[place] = t->holder->name;
    t->holder->uses++;
    return MEG_OK;
}

/* Without a note of the call: weights that the model itself ties have the last of their names in the
 * file; what the optimizer merges has the first, and begins with one number throughout, since others
 * are the same only where weights are tied. */
static bool is_tied_to(const signature *sign, const target *t, const meg_onnx_symbol *s)
{
    const target *own = own_target(sign, s);
    return (own && t->line < own->line) || !uniform(s->constant);
}

/* The call has another one where the module has its own: it is tied. Factors and summands of modules
 * may be anything. */
static void note_second_name(const meg_onnx_build *b, const signature *sign, const meg_onnx_node *n,
                             int place, const target *t)
{
    meg_bytes name = own_name(b, n, place);
    target *second = name.at ? target_of(sign, name) : NULL;
    bool layer = meg_bytes_is(n->op, "MatMul") || !moves_weights(n);
    if (second && second != t && layer) second->elsewhere = true;
}

static meg_status split_input(meg_onnx_build *b, const signature *sign, meg_onnx_node *n, int k)
{
    meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->in[k]);
    bool plain = meg_onnx_is_initializer(s) && s->kind == MEG_ONNX_PARAMETER && !s->of;
    if (!plain || s->computed) return MEG_OK;
    call c = call_of(b, sign, n, k, s);
    if (c.own) note_second_name(b, sign, n, k, own_target(sign, s));
    bool sure = !c.own && c.other && !meg_onnx_is_fused(n);
    if (c.own || (!sure && (c.count || s->uses < 2))) return MEG_OK;
    target *t = sure ? c.other : missing_of(b, sign, n, k, s);
    if (!t) return MEG_OK;
    if (sure) note_second_name(b, sign, n, k, t);
    t->found = true;
    MEG_TRY(b->error, meg_onnx_work(b, n, s->constant->size));
    if (!sure && is_tied_to(sign, t, s)) return MEG_OK;
    MEG_TRY(b->error, give_own(b, n, k, t, s->constant));
    meg_onnx_symbol_of(b, t->name)->folded = s->folded;
    t->merged = s;
    s->uses--;
    return MEG_OK;
}

/* PyTorch's optimizer makes one tensor of those that begin with the same numbers: scales of ones,
 * offsets of zeros, layers that are copies. The signature has them all, so each module gets its own
 * again. */
static meg_status split_merged(meg_onnx_build *b, const signature *sign)
{
    enum {
        MOST_INPUTS = 16 /* that are looked at: each goes through the node's notes */
    };
    for (size_t i = 0; i < b->file->nodes; i++) {
        meg_onnx_node *n = &b->file->node[i];
        for (int k = 0; k < n->inputs && k < MOST_INPUTS && !b->skip[i]; k++)
            MEG_TRY(b->error, split_input(b, sign, n, k));
    }
    return MEG_OK;
}

/* ---- what was left out ---- */

static int64_t units_of(const meg_onnx_node *n, const meg_onnx_tensor *weight)
{
    if (meg_bytes_is(n->op, "Gemm")) return weight->dims[meg_onnx_int(n, "transB", 0) ? 0 : 1];
    if (meg_bytes_is(n->op, "ConvTranspose")) return weight->dims[1] * meg_onnx_int(n, "group", 1);
    return weight->dims[0];
}

/* The bias beside "fc.weight", or the one that the module misses. */
static target *bias_of(const meg_onnx_build *b, const signature *sign, const meg_onnx_node *n,
                       const meg_onnx_symbol *weight)
{
    static const char tail[] = "weight";
    meg_bytes name = meg_onnx_weight_name(weight);
    if (!meg_ends(name, tail)) return missing_of(b, sign, n, 2, NULL);
    name.end -= strlen(tail);
    const char *bias = meg_pool_text(b->file->pool, "%.*sbias", MEG_SPAN_TEXT(name));
    target *t = target_of(sign, meg_text_span(bias));
    return t && lacks(t, NULL) ? t : NULL;
}

/* The one that the call names beside the weight: of tied biases the same one, whatever the module's
 * own is called. */
static target *noted_bias(const signature *sign, const meg_onnx_node *n,
                          const meg_onnx_symbol *weight)
{
    meg_bytes note = meg_onnx_note(n, "pkg.torch.onnx.fx_node"), word;
    const target *own = own_target(sign, weight);
    target *found = NULL;
    while (own && next_argument(&note, &word)) {
        target *t = called_so(sign, word);
        if (!t || t == own || t->kind != MEG_ONNX_PARAMETER) continue;
        if (found) return NULL;
        found = t;
    }
    return found;
}

/* PyTorch's optimizer drops biases that begin with zeros, and notes it: they are trained all the same. */
static meg_status restore_bias(meg_onnx_build *b, const signature *sign, meg_onnx_node *n)
{
    meg_bytes rule = meg_onnx_note(n, "pkg.onnxscript.rewriter.rule_name");
    const meg_onnx_symbol *weight = n->inputs == 2 ? meg_onnx_symbol_of(b, n->in[1]) : NULL;
    if (!meg_contains(rule, "RemoveOptionalBias") || !weight || !weight->constant) return MEG_OK;
    if (weight->constant->rank < 2) return MEG_OK;
    target *own = bias_of(b, sign, n, weight), *t = noted_bias(sign, n, weight);
    if (own && t) own->found = true; /* it is that one, or a second name of it */
    if (!t) t = own;
    int64_t units = t ? units_of(n, weight->constant) : 0;
    if (units < 1 || units > weight->constant->size) return MEG_OK;
    if (t->holder && t->holder->constant->size != units) return MEG_OK;
    meg_onnx_tensor *zeros = meg_pool_alloc(b->file->pool, sizeof *zeros);
    *zeros = (meg_onnx_tensor){.name = t->name, .type = MEG_ONNX_FLOAT, .rank = 1, .size = units};
    zeros->dims[0] = units;
    zeros->data = meg_pool_alloc(b->file->pool, (size_t)units * sizeof(float));
    meg_bytes *in = meg_pool_alloc(b->file->pool, 3 * sizeof *in);
    in[0] = n->in[0], in[1] = n->in[1];
    n->in = in;
    n->inputs = 3;
    return give_own(b, n, 2, t, zeros);
}

static meg_status restore_biases(meg_onnx_build *b, const signature *sign)
{
    for (size_t i = 0; i < b->file->nodes; i++)
        if (!b->skip[i]) MEG_TRY(b->error, restore_bias(b, sign, &b->file->node[i]));
    return MEG_OK;
}

/* ---- files ---- */

static void list_missing(meg_onnx_build *b, const signature *sign)
{
    for (size_t i = 0; i < sign->count; i++)
        if (lacks(&sign->at[i], NULL) && !sign->at[i].elsewhere)
            meg_onnx_list_name(b, &b->missing, sign->at[i].name);
}

meg_status meg_onnx_read_exported(meg_onnx_build *b, meg_bytes text)
{
    signature sign = {0};
    read_signature(b->file->pool, text, &sign);
    for (size_t i = 0; i < sign.count; i++) {
        meg_onnx_symbol *s = meg_onnx_symbol_of(b, sign.at[i].name);
        if (meg_onnx_is_initializer(s)) take_target(s, &sign.at[i]);
    }
    read_notes(b, &sign);
    match_modules(b, &sign);
    meg_status status = split_merged(b, &sign);
    if (status == MEG_OK) status = restore_biases(b, &sign);
    for (int i = 0; i < b->symbols; i++) {
        const meg_onnx_symbol *s = &b->symbol[i];
        if (s->computed) meg_onnx_list_name(b, &b->counted, s->name);
    }
    list_missing(b, &sign);
    free(sign.at);
    return status;
}

/* A matrix whose transpose is the table of an embedding is the same weight: random numbers do not
 * coincide. */
static bool is_tied(meg_onnx_build *b, meg_onnx_symbol *s)
{
    enum {
        MOST_TABLES = 16
    };
    const meg_onnx_tensor *t = s->constant;
    int tables = 0;
    for (size_t i = 0; i < b->file->nodes && t->rank == 2 && tables < MOST_TABLES; i++) {
        const meg_onnx_node *n = &b->file->node[i];
        if (b->skip[i] || n->inputs < 1 || !meg_bytes_is(n->op, "Gather")) continue;
        meg_onnx_symbol *other = meg_onnx_symbol_of(b, n->in[0]);
        if (!meg_onnx_is_initializer(other) || !mirrored(t, other->constant)) continue;
        tables++;
        int64_t at = 0, rows = t->dims[0], columns = t->dims[1];
        while (at < t->size &&
               fabs(meg_onnx_number(t, at) -
                    meg_onnx_number(other->constant, at % columns * rows + at / columns)) <= 0)
            at++;
        b->computed += at;
        if (at == t->size && tie(b, s, other->name)) return true;
    }
    return false;
}

static bool is_slope(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    return s->user >= 0 && meg_bytes_is(b->file->node[s->user].op, "PRelu");
}

/* TorchScript: names are all there is. What has lost its own was a weight whose axes were moved, if
 * its module can be told; else it stays doubtful. */
void meg_onnx_read_script(meg_onnx_build *b)
{
    for (int i = 0; i < b->symbols; i++) {
        meg_onnx_symbol *s = &b->symbol[i];
        if (!meg_onnx_is_initializer(s)) continue;
        bool nameless = meg_onnx_nameless(s->name);
        bool made = nameless || meg_begins(s->name, "/"); /* "/Constant_output_0": simplified */
        bool number = made && s->constant->size == 1 && !is_slope(b, s);
        s->kind = number ? MEG_ONNX_CONSTANT : MEG_ONNX_PARAMETER;
        s->guessed = true;
        if (!nameless || number || is_tied(b, s)) continue;
        meg_bytes name = guess_name(b, s);
        if (!name.at || meg_onnx_is_initializer(meg_onnx_symbol_of(b, name))) continue;
        s->label = name;
        s->folded = true;
    }
}
