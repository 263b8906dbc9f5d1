/* Files of other frameworks: see foreign.h. */
#include "import/foreign.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT_TORCH                                                                               \
    "export the network in Python: torch.onnx.export(model.train(), (x,), \"model.onnx\", "        \
    "dynamo=True, optimize=False), and give model.onnx"
#define SAVE_TORCH                                                                                 \
    "save them in Python: safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")"
#define EXPORT_KERAS                                                                               \
    "convert the network: python -m tf2onnx.convert --keras FILE --output model.onnx, and give "   \
    "model.onnx"
#define SAVE_KERAS                                                                                 \
    "save them in Python: safetensors.numpy.save_file({name: array, ...}, \"model.safetensors\")"

typedef struct foreign {
    const char *ending, *begins; /* of the name, of the content; NULL: not told by it */
    const char *is;
    const char *model, *weights; /* what to do where the one or the other is wanted */
} foreign;

static const foreign KINDS[] = {
    {".pt", NULL, "a PyTorch file", EXPORT_TORCH, SAVE_TORCH},
    {".pth", NULL, "a PyTorch file", EXPORT_TORCH, SAVE_TORCH},
    {".ckpt", NULL, "a PyTorch file", EXPORT_TORCH, SAVE_TORCH},
    {".bin", NULL, "a PyTorch file", EXPORT_TORCH, SAVE_TORCH},
    {".h5", "\x89HDF", "an HDF5 file, as Keras writes them", EXPORT_KERAS, SAVE_KERAS},
    {".hdf5", "\x89HDF", "an HDF5 file, as Keras writes them", EXPORT_KERAS, SAVE_KERAS},
    {".keras", NULL, "a Keras file", EXPORT_KERAS, SAVE_KERAS},
    {".pb", NULL, "a TensorFlow file", EXPORT_KERAS, SAVE_KERAS},
    {".tflite", NULL, "a TensorFlow Lite file", EXPORT_KERAS, SAVE_KERAS},
    {".npy", "\x93NUMPY", "an array of NumPy",
     "arrays are data: --data \"npy:images=X.npy labels=Y.npy\"", SAVE_KERAS},
    {".npz", NULL, "arrays of NumPy", "arrays are data: see `megalith list readers npy`",
     SAVE_KERAS},
    {".onnx", NULL, "an ONNX file", NULL,
     "its weights come with the network: give it as the model (megalith train FILE.onnx)"},
    {".gguf", "GGUF", "a GGUF file", "the network must come as an ONNX file", SAVE_TORCH},
    {".safetensors", NULL, "a file of weights",
     "give the network they are for as a name (`megalith list models`) or as an ONNX file, and the "
     "weights with --load",
     NULL},
    /* told by their content alone; the last rows, so that names count more */
    {NULL, "PK\x03\x04", "a zip archive, as PyTorch writes them", EXPORT_TORCH, SAVE_TORCH},
    {NULL, "\x80\x02", "a Python pickle", EXPORT_TORCH, SAVE_TORCH},
};

static bool ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), part = strlen(tail);
    return length > part && strcmp(text + length - part, tail) == 0;
}

static const foreign *by_name(const char *path)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].ending && ends_with(path, KINDS[i].ending)) return &KINDS[i];
    return NULL;
}

static const foreign *by_content(const char *path)
{
    char first[8] = "";
    FILE *f = fopen(path, "rb");
    size_t size = f ? fread(first, 1, sizeof first, f) : 0;
    if (f) fclose(f);
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const char *begins = KINDS[i].begins;
        size_t length = begins ? strlen(begins) : 0;
        if (length && size >= length && memcmp(first, begins, length) == 0) return &KINDS[i];
    }
    return NULL;
}

meg_status meg_foreign_model(meg_error *e, const char *path)
{
    const foreign *kind = by_name(path);
    MEG_CHECK(e, !kind || !kind->model, MEG_EARG, "%s is %s, not a network that can be read: %s",
              path, kind->is, kind->model);
    return MEG_OK;
}

/* ---- folders ---- */

/* The last of a folder's own folders, in the order of names, that has weights in it. */
static bool newest_inside(const char *path, char *out, size_t size)
{
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *at = d ? readdir(d) : NULL; at; at = readdir(d)) {
        char file[4096];
        const char *forms[] = {"%s/%s/model.safetensors", "%s/%s/model.safetensors.index.json"};
        bool has = false;
        for (int i = 0; i < 2 && at->d_name[0] != '.'; i++) {
            snprintf(file, sizeof file, forms[i], path, at->d_name);
            has = has || access(file, F_OK) == 0;
        }
        if (!has || (found && strcmp(at->d_name, out) < 0)) continue;
        snprintf(out, size, "%s", at->d_name);
        found = true;
    }
    if (d) closedir(d);
    return found;
}

static meg_status wrong_folder(meg_error *e, const char *path)
{
    char newest[256] = "";
    MEG_CHECK(e, !newest_inside(path, newest, sizeof newest), MEG_EARG,
              "%s is a folder of checkpoints, not of weights: use %s/%s to begin with the weights "
              "of the newest alone, or checkpoint=%s to go on with its training",
              path, path, newest, path);
    return meg_fail(e, MEG_EARG,
                    "%s is a folder without model.safetensors or its index: name a file, or a "
                    "folder that has one",
                    path);
}

meg_status meg_foreign_weights(meg_error *e, const char *path)
{
    DIR *d = opendir(path);
    if (d) closedir(d);
    if (d) return wrong_folder(e, path);
    if (e->status == MEG_EIO) return e->status;
    const foreign *kind = by_name(path), *inside = by_content(path);
    if (!kind || !kind->weights) kind = inside;
    if (!kind || !kind->weights) return e->status;
    return meg_fail(e, e->status, "%s is %s, but weights are wanted as safetensors: %s", path,
                    kind->is, kind->weights);
}
