#include "cuda/run/tuned.h"

#include "base/file_map.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "cuda/run/tuning.h"

#include <ctype.h>
#include <string.h>

enum { FORMAT = 1, SHAPE_DIGITS = 16, MOST_BYTES = 4096 };

/* What decides how fast a setting is, besides the kernels themselves. */
static enum reel_status shape_hash(char hash[SHA256_HEX], const struct cuda_gpu *set,
                                   const struct model_config *c, const int formats[TAPE_N_PHASES],
                                   struct reel_error *err) {
    const struct cuda_gpu_facts *gpu = &set->facts;
    struct buffer text = { 0 };
    enum reel_status status =
        buffer_printf(&text, err, "gpu %s %d %d model %d %d %d %d %d %d %d %d %d", gpu->name,
                      gpu->compute, gpu->n_sms, c->n_layers, c->hidden, c->n_heads, c->n_kv_heads,
                      c->head_dim, c->intermediate, c->vocab, (int)c->qk_norm, (int)c->tied);
    if (set->n > 1 && status == REEL_OK) status = buffer_printf(&text, err, " of %d", set->n);
    for (int i = 0; i < TAPE_N_PHASES && status == REEL_OK; i++)
        if (TILE_NARROW(formats[i]))
            status = buffer_printf(&text, err, " phase %d %d", i, formats[i]);
    if (status == REEL_OK) sha256_hex(text.bytes, text.size, hash);
    buffer_release(&text);
    return status;
}

enum reel_status tuned_path(struct buffer *path, const char *cache_dir, const struct cuda_gpu *gpu,
                            const struct model_config *config, const int formats[TAPE_N_PHASES],
                            struct reel_error *err) {
    char hash[SHA256_HEX], name[sizeof gpu->facts.name];
    enum reel_status status = shape_hash(hash, gpu, config, formats, err);
    strcpy(name, gpu->facts.name);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    *path = (struct buffer){ 0 };
    if (status != REEL_OK) return status;
    return buffer_printf(path, err, "%s/tuned-%s-%.*s-%s.json", cache_dir, name, SHAPE_DIGITS, hash,
                         reel_version());
}

/* Of the options under the file's own name: a copy for another GPU does not pass. */
static enum reel_status check_of(char check[SHA256_HEX], const char *path, const char *options,
                                 struct reel_error *err) {
    const char *slash = strrchr(path, '/');
    struct buffer text = { 0 };
    enum reel_status status =
        buffer_printf(&text, err, "%s\n%s", slash ? slash + 1 : path, options);
    if (status == REEL_OK) sha256_hex(text.bytes, text.size, check);
    buffer_release(&text);
    return status;
}

static enum reel_status read_checked(struct plan_options *options, const char **damage,
                                     const json_t *root, const char *path, struct reel_error *err) {
    const char *text = json_string_value(json_object_get(root, "options"));
    const char *check = json_string_value(json_object_get(root, "check"));
    struct cuda_tuning tuning = { 0 };
    char wanted[SHA256_HEX];
    *damage = "it is not a file of remembered settings";
    if (!text || !check || json_integer_value(json_object_get(root, "reel_tuning")) != FORMAT)
        return REEL_OK;
    enum reel_status status = check_of(wanted, path, text, err);
    if (status != REEL_OK) return status;
    *damage = "its settings have changed since they were written";
    if (strcmp(check, wanted) != 0) return REEL_OK;
    *damage = "its settings are not for this version";
    if (cuda_tuning_parse(&tuning, text, NULL) != REEL_OK || tuning.plan.compute) return REEL_OK;
    *damage = NULL;
    *options = tuning.plan;
    return REEL_OK;
}

enum reel_status tuned_read(struct plan_options *options, const char **damage, const char *path,
                            struct reel_error *err) {
    struct file_map file = { 0 };
    json_t *root = NULL;
    *options = (struct plan_options){ 0 };
    *damage = NULL;
    enum reel_status status = file_map_open(&file, path, NULL);
    if (status == REEL_E_NOT_FOUND) return REEL_OK;
    *damage = "it cannot be read";
    if (status != REEL_OK) return REEL_OK;
    if (file.size > MOST_BYTES)
        status = REEL_E_LIMIT;
    else
        status = json_read(&root, path, file.bytes, file.size, NULL);
    file_map_close(&file);
    status = status == REEL_OK ? read_checked(options, damage, root, path, err) : REEL_OK;
    json_decref(root);
    return status;
}

enum reel_status tuned_write(const char *path, const char *text, double before, double after,
                             struct reel_error *err) {
    char check[SHA256_HEX];
    char *bytes = NULL;
    enum reel_status status = check_of(check, path, text, err);
    if (status != REEL_OK) return status;
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:f, s:f}", "reel_tuning", FORMAT, "options", text, "check",
                  check, "tokens_per_s_before", before, "tokens_per_s_after", after);
    if (!root) return err_memory(err, "remembered settings", 0);
    status = json_write(&bytes, root, "remembered settings", err);
    if (status == REEL_OK) status = file_write_atomic(path, bytes, strlen(bytes), err);
    mem_free(bytes);
    json_decref(root);
    return status;
}
