/* Which files make up a model. Nothing here looks inside them, beyond GGUF's four-byte magic. */
#include "model/model_source.h"

#include "base/memory.h"
#include "model/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has_gguf_magic(const void *bytes, size_t n) {
    return n >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

static bool ends_with(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

static enum reel_status check_gguf_file(const char *path, struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = file_map_open(&map, path, err);
    if (status != REEL_OK) return status;
    if (!has_gguf_magic(map.bytes, map.size)) {
        const char *hint = ends_with(path, ".safetensors") || ends_with(path, ".json")
                               ? "; give the folder that holds it"
                               : "";
        status = err_set(err, REEL_E_FORMAT,
                         "%s: not a GGUF file: it does not start with \"GGUF\"%s", path, hint);
    }
    file_map_close(&map);
    return status;
}

enum reel_status model_source_open(struct model_source *source, const char *path,
                                   struct reel_error *err) {
    *source = (struct model_source){ 0 };
    struct stat st;
    if (stat(path, &st) != 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? REEL_E_NOT_FOUND : REEL_E_IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(st.st_mode)) {
        enum reel_status status = check_gguf_file(path, err);
        if (status != REEL_OK) return status;
        source->is_gguf = true;
    }
    return mem_text(&source->path, path, strlen(path), "a path", err);
}

enum reel_status model_source_open_memory(struct model_source *source, const char *name,
                                          const struct reel_memory_file *files, int n_files,
                                          struct reel_error *err) {
    *source = (struct model_source){ 0 };
    if (n_files < 1 || !files)
        return err_set(err, REEL_E_ARGUMENT, "%s: a model in memory needs at least one file", name);
    for (int i = 0; i < n_files; i++)
        if (!files[i].name || (!files[i].bytes && files[i].n_bytes))
            return err_set(err, REEL_E_ARGUMENT, "%s: file %d in memory has no name or no bytes",
                           name, i);
    source->is_gguf = n_files == 1 && (ends_with(files[0].name, ".gguf") ||
                                       has_gguf_magic(files[0].bytes, files[0].n_bytes));
    source->files = files;
    source->n_files = n_files;
    return mem_text(&source->path, name, strlen(name), "a name", err);
}

void model_source_release(struct model_source *source) {
    if (!source) return;
    mem_free(source->path);
    *source = (struct model_source){ 0 };
}

/* The one name in a folder of its own: where sentence-transformers says how a model pools. */
static const char pooling_name[] = "1_Pooling/config.json";

static bool plain_name(const char *name) {
    if (strcmp(name, pooling_name) == 0) return true;
    return name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static const struct reel_memory_file *find_in_memory(const struct model_source *source,
                                                     const char *name) {
    if (source->is_gguf) return name ? NULL : &source->files[0];
    for (int i = 0; i < source->n_files; i++)
        if (name && strcmp(source->files[i].name, name) == 0) return &source->files[i];
    return NULL;
}

/* The path of a file: source->path itself for GGUF, otherwise a name inside the folder. */
static enum reel_status file_path(const struct model_source *source, const char *name, char **path,
                                  struct reel_error *err) {
    size_t folder = strlen(source->path), n = name ? strlen(name) : 0;
    enum reel_status status = mem_zeroed(path, folder + n + 2, 1, "a path", err);
    if (status != REEL_OK) return status;
    memcpy(*path, source->path, folder);
    if (!name) return REEL_OK;
    (*path)[folder] = '/';
    memcpy(*path + folder + 1, name, n);
    return REEL_OK;
}

/* Neither being out of memory (nothing is allocated) nor an unreadable disk may look like a missing
 * file: what is in doubt is there, and opening it gives the reason. */
bool model_source_has(const struct model_source *source, const char *name) {
    if (!name || !plain_name(name) || source->is_gguf) return false;
    if (source->files) return find_in_memory(source, name) != NULL;
    char path[4096]; /* Linux opens no longer one */
    int n = snprintf(path, sizeof path, "%s/%s", source->path, name);
    struct stat st;
    if (n <= 0 || (size_t)n >= sizeof path) return false;
    return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* What is read whole and taken apart has a limit, far above what published models have: the largest
 * tokenizer.json known is 35 MB. Weights are mapped and have none. */
static size_t most_bytes(const char *name) {
    static const struct {
        const char *name;
        size_t most;
    } known[] = {
        { "tokenizer.json", (size_t)256 << 20 },
        { "tokenizer.model", (size_t)64 << 20 },
        { "vocab.json", (size_t)128 << 20 },
        { "merges.txt", (size_t)128 << 20 },
        { "tokenizer_config.json", (size_t)32 << 20 },
        { "added_tokens.json", (size_t)32 << 20 },
        { "chat_template.jinja", (size_t)4 << 20 },
        { "special_tokens_map.json", (size_t)4 << 20 },
        { "config.json", (size_t)4 << 20 },
        { "hf_quant_config.json", (size_t)4 << 20 },
        { "quantize_config.json", (size_t)4 << 20 },
        { "quant_config.json", (size_t)4 << 20 },
        { pooling_name, (size_t)4 << 20 },
        { "modules.json", (size_t)4 << 20 },
        { "config_sentence_transformers.json", (size_t)4 << 20 },
        { "generation_config.json", (size_t)4 << 20 },
        { "model.safetensors.index.json", SAFETENSORS_MAX_INDEX },
    };
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) return known[i].most;
    return SIZE_MAX;
}

enum reel_status model_source_map(const struct model_source *source, const char *name,
                                  struct file_map *map, char **shown, struct reel_error *err) {
    *map = (struct file_map){ 0 };
    if (shown) *shown = NULL;
    if (name && !plain_name(name))
        return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is not a plain file name", source->path,
                       name);
    if (!name != source->is_gguf)
        return err_set(err, REEL_E_NOT_FOUND, "%s: no file \"%s\"", source->path,
                       name ? name : "GGUF");
    char *path = NULL;
    enum reel_status status = file_path(source, name, &path, err);
    if (status == REEL_OK && source->files) {
        const struct reel_memory_file *file = find_in_memory(source, name);
        if (file && file->n_bytes > most_bytes(name))
            status = err_set(err, REEL_E_LIMIT, "%s: %zu bytes, at most %zu are allowed", path,
                             file->n_bytes, most_bytes(name));
        else if (file)
            file_map_borrow(map, file->bytes, file->n_bytes);
        else
            status = err_set(err, REEL_E_NOT_FOUND, "%s: not among the files in memory", path);
    } else if (status == REEL_OK) {
        status = file_map_open_most(map, path, most_bytes(name), err);
    }
    if (status == REEL_OK && shown) {
        *shown = path;
        path = NULL;
    }
    mem_free(path);
    return status;
}
