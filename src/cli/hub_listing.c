#include "cli/hub_listing.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_ENTRIES 100000

const char *const hub_small_files[] = { "config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "added_tokens.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        HUB_INDEX,
                                        "preprocessor_config.json",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "config_sentence_transformers.json",
                                        "LICENSE",
                                        "README.md",
                                        NULL };

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_hex(const char *text, size_t n) {
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool hub_is_of_a_model(const char *path) {
    const char *base = base_of(path);
    if (hub_ends_with(path, ".safetensors") || hub_ends_with(path, ".gguf")) return true;
    for (int i = 0; hub_small_files[i]; i++)
        if (strcmp(base, hub_small_files[i]) == 0) return true;
    return false;
}

/* One entry of "siblings". What other programs need is left out, whatever its name. */
static enum reel_status read_entry(struct hub_listing *list, const json_t *entry,
                                   struct reel_error *err) {
    struct hub_file file = { .commit = list->commit };
    const struct json_int_rule size = { "size", 0, INT64_C(1) << 44, -1, false };
    enum reel_status status = json_get_text(entry, list->repo, "rfilename", &file.path, err);
    if (status != REEL_OK || !file.path) return status;
    list->n_entries++;
    if (!hub_path_is_safe(file.path)) {
        if (!hub_is_of_a_model(file.path)) return REEL_OK;
        return err_set(err, REEL_E_FORMAT, "%s: file name \"%s\" is not allowed", list->repo,
                       file.path);
    }
    const json_t *lfs = json_object_get(entry, "lfs");
    status = json_get_int(entry, list->repo, &size, &file.n_bytes, err);
    if (status == REEL_OK) status = json_get_text(entry, list->repo, "blobId", &file.git_id, err);
    if (status == REEL_OK && json_is_object(lfs))
        status = json_get_text(lfs, list->repo, "sha256", &file.sha256, err);
    const char *commit = NULL;
    if (status == REEL_OK) status = json_get_text(entry, list->repo, "commit", &commit, err);
    if (status != REEL_OK) return status;
    if (is_hex(commit, 40)) file.commit = commit;
    bool sound =
        file.n_bytes >= 0 && (file.sha256 ? is_hex(file.sha256, 64) : is_hex(file.git_id, 40));
    if (sound)
        list->files[list->n_files++] = file;
    else if (hub_is_of_a_model(file.path))
        return err_set(err, REEL_E_FORMAT, "%s: the hub gives no size and hash for %s", list->repo,
                       file.path);
    return REEL_OK;
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

enum reel_status hub_listing_read(struct hub_listing *list, const char *repo, const char *text,
                                  size_t n_bytes, struct reel_error *err) {
    *list = (struct hub_listing){ .repo = repo };
    enum reel_status status = json_read(&list->json, repo, text, n_bytes, err);
    if (status == REEL_OK) status = json_get_text(list->json, repo, "sha", &list->commit, err);
    if (status == REEL_OK && !is_hex(list->commit, 40))
        status = err_set(err, REEL_E_FORMAT, "%s: the hub names no commit", repo);
    const json_t *gated = json_object_get(list->json, "gated");
    const json_t *siblings = json_object_get(list->json, "siblings");
    size_t n = json_array_size(siblings);
    list->gated = gated && !json_is_false(gated) && !json_is_null(gated);
    if (status == REEL_OK && n > MAX_ENTRIES)
        status = err_set(err, REEL_E_LIMIT, "%s: %zu files, at most %d are allowed", repo, n,
                         MAX_ENTRIES);
    if (status == REEL_OK)
        status = mem_zeroed(&list->files, n, sizeof *list->files, "a list of files", err);
    for (size_t i = 0; status == REEL_OK && i < n; i++)
        status = read_entry(list, json_array_get(siblings, i), err);
    if (status != REEL_OK) {
        hub_listing_release(list);
        return status;
    }
    if (list->n_files > 1)
        qsort(list->files, (size_t)list->n_files, sizeof *list->files, compare_files);
    for (int i = 1; i < list->n_files; i++)
        if (strcmp(list->files[i - 1].path, list->files[i].path) == 0) {
            status = err_set(err, REEL_E_FORMAT, "%s: the hub lists %s twice", repo,
                             list->files[i].path);
            hub_listing_release(list);
            return status;
        }
    return REEL_OK;
}

void hub_listing_release(struct hub_listing *list) {
    json_decref(list->json);
    mem_free(list->files);
    *list = (struct hub_listing){ 0 };
}

static int compare_path(const void *path, const void *file) {
    return strcmp(path, ((const struct hub_file *)file)->path);
}

const struct hub_file *hub_listing_find(const struct hub_listing *list, const char *path) {
    if (list->n_files == 0) return NULL;
    return bsearch(path, list->files, (size_t)list->n_files, sizeof *list->files, compare_path);
}

/* ---- the manifest ---------------------------------------------------------------------------- */

static json_t *entry_of(const struct hub_file *file) {
    json_t *entry = json_object(), *lfs = NULL;
    bool good = entry && json_object_set_new(entry, "rfilename", json_string(file->path)) == 0 &&
                json_object_set_new(entry, "size", json_integer(file->n_bytes)) == 0 &&
                json_object_set_new(entry, "commit", json_string(file->commit)) == 0;
    if (good && file->git_id)
        good = json_object_set_new(entry, "blobId", json_string(file->git_id)) == 0;
    if (good && file->sha256) {
        lfs = json_object();
        good = lfs && json_object_set_new(lfs, "sha256", json_string(file->sha256)) == 0;
        good = json_object_set_new(entry, "lfs", lfs) == 0 && good;
    }
    if (good) return entry;
    json_decref(entry);
    return NULL;
}

enum reel_status hub_manifest_write(char **text, const char *commit,
                                    const struct hub_file *const *files, int n_files,
                                    struct reel_error *err) {
    json_t *all = json_object(), *list = json_array();
    bool good = all && list && json_object_set_new(all, "sha", json_string(commit)) == 0;
    for (int i = 0; good && i < n_files; i++)
        if (files[i]->sha256 || files[i]->git_id)
            good = json_array_append_new(list, entry_of(files[i])) == 0;
    good = good && json_object_set(all, "siblings", list) == 0 &&
           json_object_set_new(all, "format", json_integer(2)) == 0;
    enum reel_status status =
        good ? json_write(text, all, "a manifest", err) : err_memory(err, "a manifest", 0);
    json_decref(list);
    json_decref(all);
    return status;
}

/* ---- choices --------------------------------------------------------------------------------- */

/* The bytes of all safetensors of a folder; 0 where none could be opened there. */
static int64_t safetensors_bytes(const struct hub_listing *list, const char *path, size_t n) {
    int64_t sum = 0;
    bool opens = false;
    for (int i = 0; i < list->n_files; i++) {
        const char *file = list->files[i].path;
        if (strncmp(file, path, n) != 0 || strchr(file + n, '/')) continue;
        if (strcmp(file + n, HUB_WEIGHTS) == 0 || strcmp(file + n, HUB_INDEX) == 0) opens = true;
        if (hub_ends_with(file, ".safetensors")) sum += list->files[i].n_bytes;
    }
    return opens ? sum : 0;
}

static bool take_folder(struct hub_choice *choice, const struct hub_listing *list,
                        const struct hub_file *file) {
    const char *base = base_of(file->path);
    if (strcmp(base, "config.json") != 0) return false;
    size_t n = (size_t)(base - file->path);
    int64_t n_bytes = safetensors_bytes(list, file->path, n);
    if (n_bytes == 0) return false;
    *choice =
        (struct hub_choice){ .path = file->path, .n_path = n, .n_bytes = n_bytes, .parts = 1 };
    snprintf(choice->label, sizeof choice->label, "%.*s", n ? (int)n - 1 : 0, file->path);
    return true;
}

static bool take_gguf(struct hub_choice *choice, const struct hub_file *file) {
    if (!hub_ends_with(file->path, ".gguf") || hub_is_companion(file->path)) return false;
    *choice = (struct hub_choice){ .gguf = true,
                                   .path = file->path,
                                   .n_path = strlen(file->path),
                                   .n_bytes = file->n_bytes,
                                   .parts = hub_parts(file->path) };
    hub_label(file->path, choice->label);
    return true;
}

enum reel_status hub_choices_find(struct hub_choices *all, const struct hub_listing *list,
                                  struct reel_error *err) {
    *all = (struct hub_choices){ 0 };
    size_t n = (size_t)list->n_files;
    enum reel_status status = mem_zeroed(&all->list, n, sizeof *all->list, "a list of models", err);
    if (status != REEL_OK) return status;
    const struct hub_file *top = hub_listing_find(list, hub_small_files[0]);
    if (top && take_folder(&all->list[0], list, top)) all->n = 1;
    for (int i = 0; i < list->n_files; i++) {
        struct hub_choice choice;
        if (&list->files[i] == top) continue;
        bool found =
            take_gguf(&choice, &list->files[i]) || take_folder(&choice, list, &list->files[i]);
        const struct hub_choice *last = all->n ? &all->list[all->n - 1] : NULL;
        bool same =
            found && last && last->gguf && choice.gguf && choice.parts > 1 &&
            choice.n_path == last->n_path &&
            strncmp(choice.path, last->path, choice.n_path - strlen("00001-of-00002.gguf")) == 0;
        if (same)
            all->list[all->n - 1].n_bytes += choice.n_bytes;
        else if (found)
            all->list[all->n++] = choice;
    }
    return REEL_OK;
}

void hub_choices_release(struct hub_choices *all) {
    mem_free(all->list);
    *all = (struct hub_choices){ 0 };
}

static int match(const struct hub_choice *choice, const char *what) {
    if (choice->gguf) return hub_match(choice->path, what);
    return choice->n_path > 0 && strcmp(choice->label, what) == 0 ? 6 : 0;
}

void hub_size_text(int64_t n_bytes, char text[HUB_SIZE_TEXT]) {
    double mb = (double)n_bytes / 1e6;
    if (mb >= 9999.5)
        snprintf(text, HUB_SIZE_TEXT, "%.1f GB", mb / 1e3);
    else if (mb >= 1000)
        snprintf(text, HUB_SIZE_TEXT, "%.2f GB", mb / 1e3);
    else
        snprintf(text, HUB_SIZE_TEXT, mb >= 10 ? "%.0f MB" : "%.1f MB", mb);
}

/* "Q4_K_M 397 MB, Q8_0 639 MB", cut where a line of an error ends. */
static void list_text(const struct hub_choices *all, char *text, size_t n) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < all->n; i++) {
        char size[HUB_SIZE_TEXT], item[HUB_MAX_LABEL + HUB_SIZE_TEXT + 8];
        const struct hub_choice *c = &all->list[i];
        hub_size_text(c->n_bytes, size);
        int m = snprintf(item, sizeof item, "%s%s %s", i ? ", " : "",
                         c->label[0] ? c->label : "safetensors", size);
        if (used + (size_t)m + 20 > n) {
            snprintf(text + used, n - used, ", %d more", all->n - i);
            return;
        }
        memcpy(text + used, item, (size_t)m + 1);
        used += (size_t)m;
    }
}

static enum reel_status nothing_like_it(const struct hub_choices *all,
                                        const struct hub_listing *list, const char *what,
                                        struct reel_error *err) {
    const char *labels[60], *nearest;
    char text[260];
    int n = 0;
    for (int i = 0; i < all->n && n < 59; i++)
        if (all->list[i].label[0]) labels[n++] = all->list[i].label;
    labels[n] = NULL;
    nearest = cli_nearest(what, labels);
    list_text(all, text, sizeof text);
    if (nearest)
        return err_set(err, REEL_E_NOT_FOUND, "%s: has no \"%s\"; did you mean %s:%s? There are %s",
                       list->repo, what, list->repo, nearest, text);
    return err_set(err, REEL_E_NOT_FOUND, "%s: has no \"%s\"; there %s %s", list->repo, what,
                   all->n == 1 ? "is" : "are", all->n ? text : "no models that reel reads");
}

enum reel_status hub_choices_pick(const struct hub_choices *all, const struct hub_listing *list,
                                  const char *what, const struct hub_choice **choice,
                                  struct reel_error *err) {
    int best = 0, n = 0;
    const struct hub_choice *other = NULL;
    *choice = NULL;
    for (int i = 0; i < all->n; i++) {
        int level = match(&all->list[i], what);
        if (level == 0 || level < best) continue;
        n = level > best ? 1 : n + 1;
        best = level;
        other = *choice;
        *choice = &all->list[i];
    }
    if (n == 0) return nothing_like_it(all, list, what, err);
    if (n > 1)
        return err_set(err, REEL_E_ARGUMENT,
                       "%s: \"%s\" can be %s or %s; give one of them with --file", list->repo, what,
                       other->path, (*choice)->path);
    if ((*choice)->parts == 1) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: %s is in %d parts; reel reads GGUF files of one part", list->repo,
                   (*choice)->path, (*choice)->parts);
}

int hub_choices_usual(const struct hub_choices *all) {
    static const char *const usual[] = { "Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_1", "Q4_0", "Q4_K_L",
                                         "Q5_K_M", "Q5_K_S", "Q5_1",    "Q5_0", "Q6_K", "Q8_0" };
    for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
        for (int i = 0; i < all->n; i++)
            if (strcasecmp(all->list[i].label, usual[k]) == 0 && all->list[i].parts == 1) return i;
    return -1;
}

enum reel_status hub_choices_ask(const struct hub_choices *all, const struct hub_listing *list,
                                 struct reel_error *err) {
    char text[330];
    int usual = hub_choices_usual(all);
    list_text(all, text, sizeof text);
    return err_set(err, REEL_E_ARGUMENT, "%s: has several models: %s. Name one: reel pull %s:%s",
                   list->repo, text, list->repo, all->list[usual < 0 ? 0 : usual].label);
}

/* ---- nothing to run -------------------------------------------------------------------------- */

static const struct {
    const char *ending, *name;
} formats[] = {
    { ".safetensors", "safetensors under another name than reel opens" },
    { ".bin", "PyTorch" },
    { ".pt", "PyTorch" },
    { ".pth", "PyTorch" },
    { ".ckpt", "PyTorch" },
    { ".onnx", "ONNX" },
    { ".h5", "TensorFlow" },
    { ".msgpack", "Flax" },
    { ".tflite", "TensorFlow Lite" },
    { ".task", "MediaPipe" },
    { ".litertlm", "LiteRT" },
    { ".mlmodel", "Core ML" },
    { ".nemo", "NeMo" },
    { ".llamafile", "llamafile" },
    { ".ot", "Rust" },
};

enum reel_status hub_listing_no_model(const struct hub_listing *list, struct reel_error *err) {
    char has[300] = "";
    size_t used = 0;
    const char *last = "";
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        if (strcmp(formats[k].name, last) == 0) continue;
        for (int i = 0; i < list->n_files && used < sizeof has - 1; i++) {
            if (!hub_ends_with(list->files[i].path, formats[k].ending)) continue;
            int m = snprintf(has + used, sizeof has - used, "%s%s (%.60s)", used ? ", " : "",
                             formats[k].name, list->files[i].path);
            used = m > 0 && (size_t)m < sizeof has - used ? used + (size_t)m : sizeof has - 1;
            last = formats[k].name;
            break;
        }
    }
    if (hub_listing_find(list, "adapter_config.json"))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: an adapter for another model, which reel cannot run", list->repo);
    if (used)
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "%s: has neither safetensors with config.json nor GGUF files, which are what "
            "reel reads; it has %s",
            list->repo, has);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: has neither safetensors nor GGUF files, nor any other weights that reel "
                   "knows, among its %d files",
                   list->repo, list->n_entries);
}
