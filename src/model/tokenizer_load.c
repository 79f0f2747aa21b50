/* Finding the files of a tokenizer, hashing them, and reading them only when no cache has them. */
#include "base/memory.h"
#include "model/tokenizer_cache.h"
#include "model/tokenizer_parts.h"

enum { FILE_MAIN, FILE_MERGES, FILE_CONFIG, FILE_ADDED, N_FILES };

/* What FILE_MAIN is, in the order in which they are looked for. */
enum form { FORM_JSON, FORM_SPM, FORM_VOCAB, N_FORMS };
static const char *const form_names[N_FORMS] = { "tokenizer.json", "tokenizer.model",
                                                 "vocab.json" };

/* The files of a folder; those that are not there stay zeroed. */
struct tokenizer_files {
    enum form form;
    bool present[N_FILES];
    struct file_map maps[N_FILES];
    char *names[N_FILES];
};

static void files_release(struct tokenizer_files *files) {
    for (int i = 0; i < N_FILES; i++) {
        file_map_close(&files->maps[i]);
        mem_free(files->names[i]);
    }
}

/* Asks for the file rather than whether it is there: one that cannot be read is not absent. */
static enum reel_status map_file(struct tokenizer_files *files, int which,
                                 const struct model_source *source, const char *name, bool required,
                                 struct reel_error *err) {
    struct reel_error missing;
    enum reel_status status = model_source_map(source, name, &files->maps[which],
                                               &files->names[which], required ? err : &missing);
    files->present[which] = status == REEL_OK;
    if (status == REEL_OK || required) return status;
    if (status == REEL_E_NOT_FOUND) return REEL_OK;
    return err_set(err, status, "%s", missing.text);
}

static enum reel_status map_files(struct tokenizer_files *files, const struct model_source *source,
                                  struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int form = 0; status == REEL_OK && form < N_FORMS && !files->present[FILE_MAIN]; form++) {
        files->form = (enum form)form;
        status = map_file(files, FILE_MAIN, source, form_names[form], false, err);
    }
    if (status != REEL_OK) return status;
    if (!files->present[FILE_MAIN])
        return err_set(err, REEL_E_NOT_FOUND,
                       "%s: no tokenizer: neither tokenizer.json, tokenizer.model nor vocab.json "
                       "is there",
                       source->path);
    bool vocab = files->form == FORM_VOCAB;
    if (vocab) status = map_file(files, FILE_MERGES, source, "merges.txt", true, err);
    if (status == REEL_OK)
        status = map_file(files, FILE_CONFIG, source, "tokenizer_config.json", vocab, err);
    if (status == REEL_OK && files->form == FORM_SPM)
        status = map_file(files, FILE_ADDED, source, "added_tokens.json", false, err);
    return status;
}

/* The hash of a list of hashes: what each part is called and what is in it. */
static enum reel_status hash_part(struct buffer *list, const char *key, const void *bytes, size_t n,
                                  struct reel_error *err) {
    char hex[SHA256_HEX];
    sha256_hex(bytes, n, hex);
    return buffer_printf(list, err, "%s %s\n", key, hex);
}

static enum reel_status hash_files(const struct tokenizer_files *files, char hex[SHA256_HEX],
                                   struct reel_error *err) {
    static const char *const keys[N_FILES] = { "main", "merges", "config", "added" };
    struct buffer list = { 0 };
    enum reel_status status = buffer_printf(&list, err, "%s\n", form_names[files->form]);
    for (int i = 0; status == REEL_OK && i < N_FILES; i++)
        if (files->present[i])
            status = hash_part(&list, keys[i], files->maps[i].bytes, files->maps[i].size, err);
    if (status == REEL_OK) sha256_hex(list.bytes, list.size, hex);
    buffer_release(&list);
    return status;
}

/* Everything parts_from_gguf looks at, and nothing else: a hash of the weights would take longer
 * than reading the tokenizer. */
static enum reel_status hash_gguf(const struct gguf *gguf, char hex[SHA256_HEX],
                                  struct reel_error *err) {
    static const char *const keys[] = {
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.remove_extra_whitespaces",
    };
    struct buffer list = { 0 };
    enum reel_status status = buffer_text(&list, "gguf\n", err);
    for (size_t i = 0; status == REEL_OK && i < sizeof keys / sizeof keys[0]; i++) {
        const struct gguf_value *value = gguf_find(gguf, keys[i]);
        if (!value) continue;
        status = buffer_printf(&list, err, "%d %d %llu ", (int)value->type,
                               (int)value->element_type, (unsigned long long)value->count);
        if (status == REEL_OK)
            status = hash_part(&list, keys[i], value->bytes, value->n_bytes, err);
    }
    if (status == REEL_OK) sha256_hex(list.bytes, list.size, hex);
    buffer_release(&list);
    return status;
}

static enum reel_status parts_from_files(struct tokenizer_parts *parts,
                                         const struct tokenizer_files *files,
                                         struct reel_error *err) {
    const struct file_map *config = files->present[FILE_CONFIG] ? &files->maps[FILE_CONFIG] : NULL;
    if (files->form == FORM_JSON)
        return parts_from_json(parts, files->names[FILE_MAIN], &files->maps[FILE_MAIN],
                               files->names[FILE_CONFIG], config, err);
    if (files->form == FORM_SPM) {
        enum reel_status status =
            parts_from_spm(parts, files->names[FILE_MAIN], &files->maps[FILE_MAIN],
                           files->names[FILE_CONFIG], config, err);
        if (status != REEL_OK || !files->present[FILE_ADDED]) return status;
        return parts_from_added(parts, files->names[FILE_ADDED], &files->maps[FILE_ADDED], err);
    }
    return parts_from_vocab(parts, files->names[FILE_MAIN], &files->maps[FILE_MAIN],
                            files->names[FILE_MERGES], &files->maps[FILE_MERGES],
                            files->names[FILE_CONFIG], config, err);
}

enum reel_status tokenizer_load(struct reel_tokenizer **out, const struct model_source *source,
                                const struct gguf *gguf, const char *cache_dir,
                                struct reel_error *err) {
    struct tokenizer_files files = { 0 };
    struct tokenizer_parts parts = { 0 };
    char hash[SHA256_HEX] = ""; /* without a cache nobody asks for it */
    enum reel_status status = REEL_OK;
    *out = NULL;
    if (!gguf) status = map_files(&files, source, err);
    if (status == REEL_OK && cache_dir) {
        status = gguf ? hash_gguf(gguf, hash, err) : hash_files(&files, hash, err);
        if (status == REEL_OK) status = tokenizer_cache_read(out, cache_dir, hash, err);
    }
    if (status == REEL_OK && !*out) {
        status = gguf ? parts_from_gguf(&parts, gguf, err) : parts_from_files(&parts, &files, err);
        if (status == REEL_OK) status = tokenizer_build(out, &parts, hash, err);
        if (status == REEL_OK && cache_dir) tokenizer_cache_write(*out, cache_dir);
    }
    parts_release(&parts);
    files_release(&files);
    return status;
}
