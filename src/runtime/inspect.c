/* reel_model_inspect: what is in a model file, as JSON. Weights are not read. A checkpoint that
 * reel does not run is still described; "problem" then says what is in the way. reel_model_plan:
 * how a GPU would run it. */
#include "base/json.h"
#include "base/machine.h"
#include "base/struct_size.h"
#include "model/chat_template.h"
#include "model/embed_config.h"
#include "model/kv_form.h"
#include "model/model_config_variants.h"
#include "model/safetensors.h"
#include "model/stop_ids.h"
#include "model/tokenizer.h"
#include "model/tokenizer_utf8.h"
#include "plan/memory_plan.h"
#include "plan/plan_layout.h"
#include "runtime/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct inspection {
    struct model_source source;
    struct gguf gguf;
    struct tensor_file tensors;
    struct model_config config;
    struct weights weights;
    struct chat_template chat;
    const char *tokenizer_kind; /* NULL when it does not load */
    int n_tokens;
    struct buffer unknown;     /* keys of config.json that no one here knows, between spaces */
    struct reel_error problem; /* REEL_OK when the model can run */
    bool has_config;
    bool has_weights;
};

static void inspection_release(struct inspection *in) {
    buffer_release(&in->unknown);
    chat_template_release(&in->chat);
    weights_release(&in->weights);
    tensor_file_release(&in->tensors);
    gguf_release(&in->gguf);
    model_source_release(&in->source);
}

/* What model_load reads of texts, in its order: what it refuses is a problem here too. */
static enum reel_status judge_texts(struct inspection *in, const struct gguf *gguf) {
    struct reel_tokenizer *tok = NULL;
    struct embed_config embed = { 0 };
    enum reel_status status = tokenizer_load(&tok, &in->source, gguf, NULL, &in->problem);
    if (status == REEL_OK) {
        in->tokenizer_kind = tokenizer_kind_name(tok);
        in->n_tokens = tokenizer_size(tok);
    }
    if (status == REEL_OK)
        status = stop_ids_add_tokenizers(&in->config, &in->source, tok, &in->problem);
    if (status == REEL_OK)
        status = chat_template_load(&in->chat, &in->source, gguf, NULL, NULL, &in->problem);
    if (status == REEL_OK && in->chat.source && !in->chat.parsed) /* it opens, and cannot chat */
        status = err_set(&in->problem, REEL_E_UNSUPPORTED,
                         "the chat template cannot be evaluated: %s", in->chat.problem.text);
    if (status == REEL_OK) status = embed_config_load(&embed, &in->source, gguf, &in->problem);
    embed_config_release(&embed);
    tokenizer_close(tok);
    return status;
}

/* Whoever wrote a key that is not known may have meant maths that is not known either. Of a larger
 * model only the language model's own object is looked at: the other keys are those of other parts.
 */
static enum reel_status find_unknown(struct inspection *in, struct reel_error *err) {
    static const char name[] = "config.json";
    struct file_map map = { 0 };
    json_t *object = NULL;
    if (!model_source_has(&in->source, name)) return REEL_OK;
    enum reel_status status = model_source_map(&in->source, name, &map, NULL, err);
    if (status == REEL_OK) status = json_read(&object, name, map.bytes, map.size, err);
    const json_t *thinker = json_object_get(object, "thinker_config");
    const json_t *text = json_object_get(thinker ? thinker : object, "text_config");
    if (status == REEL_OK)
        status = model_config_unknown(in->config.nested ? text : object, &in->unknown, err);
    json_decref(object);
    file_map_close(&map);
    return status;
}

/* Only memory running out ends the inspection here; anything else is its result. */
static enum reel_status judge(struct inspection *in, struct reel_error *err) {
    const struct gguf *gguf = in->source.is_gguf ? &in->gguf : NULL;
    enum reel_status status =
        gguf ? model_config_from_gguf(&in->config, gguf, &in->tensors, &in->problem)
             : model_config_read(&in->config, &in->source, &in->problem);
    in->has_config = status == REEL_OK;
    if (status == REEL_OK && !gguf)
        status = quant_config_read(&in->tensors.quant, &in->source, &in->problem);
    if (status == REEL_OK)
        status = weights_check(&in->weights, &in->config, &in->tensors, gguf != NULL, &in->problem);
    in->has_weights = in->has_config && status == REEL_OK;
    if (in->has_config && !gguf && find_unknown(in, &in->problem) == REEL_E_MEMORY)
        status = REEL_E_MEMORY;
    if (status == REEL_OK) status = judge_texts(in, gguf);
    in->problem.status = status;
    if (status != REEL_E_MEMORY) return REEL_OK;
    return err_set(err, status, "%s", in->problem.text);
}

static enum reel_status examine(struct inspection *in, const char *path, struct reel_error *err) {
    enum reel_status status = model_source_open(&in->source, path, err);
    if (status != REEL_OK) return status;
    status = in->source.is_gguf ? gguf_open(&in->gguf, &in->tensors, &in->source, err)
                                : safetensors_open(&in->tensors, &in->source, err);
    return status == REEL_OK ? judge(in, err) : status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The object being filled; `ok` turns false when memory runs out and stays so. */
struct writer {
    json_t *object;
    bool ok;
};

static struct writer writer_start(void) {
    struct writer w = { .object = json_object() };
    w.ok = w.object != NULL;
    return w;
}

static void put(struct writer *w, const char *key, json_t *value) {
    if (json_object_set_new(w->object, key, value) != 0) w->ok = false;
}

static void put_int(struct writer *w, const char *key, uint64_t value) {
    put(w, key, json_integer((json_int_t)value));
}

static void put_real(struct writer *w, const char *key, double value) {
    put(w, key, json_real(value));
}

/* Text from a file: what is not UTF-8 becomes null. */
static void put_text(struct writer *w, const char *key, const char *text, size_t n) {
    bool writable = text && utf8_valid_prefix(text, n) == n;
    put(w, key, writable ? json_stringn(text, n) : json_null());
}

/* A message, whose text from files may be cut within a character: other bytes become "?". */
static void put_message(struct writer *w, const char *key, const struct reel_error *problem) {
    char text[sizeof problem->text];
    size_t n = strlen(problem->text), at = 0;
    memcpy(text, problem->text, n + 1);
    while ((at += utf8_valid_prefix(text + at, n - at)) < n)
        text[at] = '?';
    put_text(w, key, text, n);
}

static void put_name(struct writer *w, const char *key, const char *text) {
    put_text(w, key, text, text ? strlen(text) : 0);
}

static json_t *finish(struct writer *w) {
    if (w->ok) return w->object;
    json_decref(w->object);
    return NULL;
}

/* float32 in as few digits as tell it from its neighbours: 1e-05, not 9.99999974737875e-06 */
static double shortest(float x) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return strtod(text, NULL);
}

static json_t *stop_ids(const struct model_config *c) {
    json_t *list = json_array();
    for (int i = 0; list && i < c->n_stop_ids; i++) {
        if (json_array_append_new(list, json_integer(c->stop_ids[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* What only models with DeltaNet layers have to say. */
static void put_hybrid(struct writer *w, const struct model_config *c) {
    int n = model_layer_count(c, LAYER_DELTA);
    if (n == 0) return;
    put_int(w, "rotary_dim", (uint64_t)c->rotary_dim);
    put(w, "gated_attention", json_boolean(c->gated_attention));
    put_int(w, "attention_layers", (uint64_t)(c->n_layers - n));
    put_int(w, "delta_layers", (uint64_t)n);
    put_int(w, "delta_key_heads", (uint64_t)c->delta.key_heads);
    put_int(w, "delta_value_heads", (uint64_t)c->delta.value_heads);
    put_int(w, "delta_key_dim", (uint64_t)c->delta.key_dim);
    put_int(w, "delta_value_dim", (uint64_t)c->delta.value_dim);
    put_int(w, "delta_conv_width", (uint64_t)c->delta.conv_width);
    put_int(w, "draft_layers", (uint64_t)c->n_draft_layers);
}

/* What only speech models have to say. */
static void put_audio(struct writer *w, const struct audio_config *c) {
    if (c->n_layers == 0) return;
    put_int(w, "audio_layers", (uint64_t)c->n_layers);
    put_int(w, "audio_hidden", (uint64_t)c->hidden);
    put_int(w, "audio_heads", (uint64_t)c->n_heads);
    put_int(w, "audio_intermediate", (uint64_t)c->intermediate);
    put_int(w, "audio_bins", (uint64_t)c->n_bins);
    put_int(w, "audio_channels", (uint64_t)c->n_channels);
    put_int(w, "audio_window_chunks", (uint64_t)c->window_chunks);
}

static json_t *describe_config(const struct model_config *c) {
    static const char *const rope[] = {
        [ROPE_PLAIN] = "default", [ROPE_LLAMA3] = "llama3", [ROPE_FACTORS] = "factors"
    };
    struct writer w = writer_start();
    put_name(&w, "family", model_family_name(c->family));
    put_int(&w, "layers", (uint64_t)c->n_layers);
    put_int(&w, "hidden", (uint64_t)c->hidden);
    put_int(&w, "heads", (uint64_t)c->n_heads);
    put_int(&w, "kv_heads", (uint64_t)c->n_kv_heads);
    put_int(&w, "head_dim", (uint64_t)c->head_dim);
    put_int(&w, "intermediate", (uint64_t)c->intermediate);
    put_int(&w, "vocab", (uint64_t)c->vocab);
    put_int(&w, "max_context", (uint64_t)c->max_context);
    put_real(&w, "rms_eps", shortest(c->rms_eps));
    put_real(&w, "rope_theta", c->rope_theta);
    put_name(&w, "rope_scaling", rope[c->rope]);
    put(&w, "qk_norm", json_boolean(c->qk_norm));
    put(&w, "qkv_bias", json_boolean(c->qkv_bias));
    if (c->window) put_int(&w, "window", (uint64_t)c->window);
    put_hybrid(&w, c);
    put_audio(&w, &c->audio);
    put(&w, "tied_output", json_boolean(c->tied));
    put(&w, "stop_ids", stop_ids(c));
    return finish(&w);
}

static json_t *describe_shape(const struct tensor *t) {
    json_t *shape = json_array();
    for (int i = 0; shape && i < t->rank; i++) {
        if (json_array_append_new(shape, json_integer(t->shape[i])) == 0) continue;
        json_decref(shape);
        return NULL;
    }
    return shape;
}

static json_t *describe_tensor(const struct tensor_file *file, const struct tensor *t) {
    struct writer w = writer_start();
    put_name(&w, "name", t->name);
    put_name(&w, "type", dtype_name(t->dtype));
    put(&w, "shape", describe_shape(t));
    put_int(&w, "bytes", t->n_bytes);
    if (file->n_maps > 1) put_name(&w, "file", tensor_file_path(file, t));
    return finish(&w);
}

/* {"q4_1": {"tensors": 210, "bytes": 66355200}, ...}: types that occur */
static json_t *describe_types(const struct tensor_file *file) {
    uint64_t n[DTYPE_COUNT] = { 0 }, bytes[DTYPE_COUNT] = { 0 };
    for (int i = 0; i < file->n_tensors; i++) {
        n[file->tensors[i].dtype]++;
        bytes[file->tensors[i].dtype] += file->tensors[i].n_bytes;
    }
    struct writer w = writer_start();
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (n[type] == 0) continue;
        struct writer row = writer_start();
        put_int(&row, "tensors", n[type]);
        put_int(&row, "bytes", bytes[type]);
        put(&w, dtype_name((enum dtype)type), finish(&row));
    }
    return finish(&w);
}

/* How narrow weights are stored: scales and zero points count as bits of their weights. Of GGUF's
 * blocks the bits are those of all tensors. */
static void put_codes(struct writer *w, const struct weights *weights) {
    if (!weights->coded.format) {
        const double all = 8.0 * (double)weights->n_bytes / (double)weights->n_parameters;
        if (dtype_block_elements(weights->main_type) > 1)
            put_real(w, "bits_per_weight", round(100 * all) / 100);
        return;
    }
    const double bits = 8.0 * (double)weights->coded.n_bytes;
    put_name(w, "format", weights->coded.format);
    put_real(w, "bits_per_weight", round(100 * bits / (double)weights->coded.n_parameters) / 100);
    put_int(w, "coded_parameters", weights->coded.n_parameters);
    put_name(w, "wide", weights->coded.wide);
}

static json_t *describe_tensors(const struct inspection *in) {
    const struct tensor_file *file = &in->tensors;
    struct writer w = writer_start();
    uint64_t bytes = 0;
    for (int i = 0; i < file->n_maps; i++)
        bytes += file->maps[i].size;
    put_int(&w, "count", (uint64_t)file->n_tensors);
    put_int(&w, "ignored", (uint64_t)file->n_ignored);
    put_int(&w, "files", (uint64_t)file->n_maps);
    put_int(&w, "file_bytes", bytes);
    put(&w, "types", describe_types(file));
    if (in->has_weights) {
        put_int(&w, "parameters", in->weights.n_parameters);
        put_int(&w, "weight_bytes", in->weights.n_bytes);
        put_name(&w, "main_type", dtype_name(in->weights.main_type));
        put_codes(&w, &in->weights);
        put_int(&w, "skipped", (uint64_t)in->weights.n_skipped);
        put_int(&w, "skipped_bytes", in->weights.skipped_bytes);
        put_int(&w, "draft_parameters", in->weights.draft.n_parameters);
        put_int(&w, "draft_bytes", in->weights.draft.n_bytes);
    }
    json_t *list = json_array();
    for (int i = 0; list && w.ok && i < file->n_tensors; i++)
        if (json_array_append_new(list, describe_tensor(file, &file->tensors[i])) != 0)
            w.ok = false;
    put(&w, "list", list);
    return finish(&w);
}

static void put_gguf_tokenizer(struct writer *w, const struct gguf *gguf) {
    const char *text = NULL;
    size_t n = 0;
    if (gguf_get_text(gguf, "tokenizer.ggml.model", false, &text, &n, NULL) == REEL_OK)
        put_text(w, "model", text, n);
    text = NULL;
    if (gguf_get_text(gguf, "tokenizer.ggml.pre", false, &text, &n, NULL) == REEL_OK)
        put_text(w, "pre_tokenizer", text, n);
    const struct gguf_value *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    const struct gguf_value *merges = gguf_find(gguf, "tokenizer.ggml.merges");
    if (tokens) put_int(w, "tokens", tokens->count);
    if (merges) put_int(w, "merges", merges->count);
}

/* What evaluating the template showed of it. */
static void put_chat(struct writer *w, const struct chat_template *chat) {
    static const char *const unasked[] = { "thinking in the answer", "thinking in the prompt" };
    const struct chat_syntax *syntax = &chat->syntax;
    char line[200];
    put_name(w, "chat_template", chat_template_name(chat));
    if (chat->source) put_name(w, "chat_template_sha256", chat->hash);
    if (chat->source && !chat->parsed) put_name(w, "chat_template_problem", chat->problem.text);
    if (!chat->parsed) return;
    snprintf(line, sizeof line, "%.60s...%.60s, %s", syntax->think_open, syntax->think_close,
             unasked[syntax->opens_thinking[0]]);
    put_name(w, "thinking", syntax->thinks ? line : NULL);
    chat_syntax_describe_calls(syntax, line, sizeof line);
    put_name(w, "tool_calls", line);
}

static json_t *describe_tokenizer(const struct inspection *in) {
    static const char *const names[] = {
        "tokenizer.json", "tokenizer.model",       "vocab.json",
        "merges.txt",     "tokenizer_config.json", "added_tokens.json"
    };
    struct writer w = writer_start();
    if (in->tokenizer_kind) {
        put_name(&w, "kind", in->tokenizer_kind);
        put_int(&w, "tokens", (uint64_t)in->n_tokens);
    }
    if (in->source.is_gguf) {
        put_gguf_tokenizer(&w, &in->gguf);
    } else {
        json_t *files = json_array();
        for (size_t i = 0; files && i < sizeof names / sizeof names[0]; i++)
            if (model_source_has(&in->source, names[i]) &&
                json_array_append_new(files, json_string(names[i])) != 0)
                w.ok = false;
        put(&w, "files", files);
    }
    put_chat(&w, &in->chat);
    return finish(&w);
}

static json_t *describe_memory(const struct inspection *in) {
    uint64_t available = machine_memory_available();
    struct memory_plan plan;
    memory_plan_fill(&plan, &in->config, &in->weights, in->config.max_context);
    uint64_t fixed = plan.total_bytes - plan.kv_bytes;
    int context =
        memory_plan_context(in->config.max_context, fixed, plan.kv_position_bytes, available);
    memory_plan_fill(&plan, &in->config, &in->weights, context);
    struct writer w = writer_start();
    put_int(&w, "weights", plan.weight_bytes);
    put_int(&w, "copied_weights", plan.owned_bytes);
    put_int(&w, "scratch", plan.scratch_bytes);
    put_int(&w, "kv_per_position", plan.kv_position_bytes);
    put_int(&w, "kv_codes_per_position", plan.kv_codes_position_bytes);
    put_int(&w, "context", (uint64_t)context);
    put_int(&w, "kv", plan.kv_bytes);
    put_int(&w, "state", plan.state_bytes);
    put_int(&w, "total", plan.total_bytes);
    put_int(&w, "available", available);
    put(&w, "fits", json_boolean(available == 0 || plan.total_bytes <= available));
    put_int(&w, "token_bytes", plan.token_bytes);
    return finish(&w);
}

static json_t *describe(const struct inspection *in) {
    struct writer w = writer_start();
    put_name(&w, "path", in->source.path);
    put_name(&w, "container", in->source.is_gguf ? "gguf" : "safetensors");
    put(&w, "config", in->has_config ? describe_config(&in->config) : json_null());
    put(&w, "tensors", describe_tensors(in));
    put(&w, "tokenizer", describe_tokenizer(in));
    put(&w, "memory", in->has_weights ? describe_memory(in) : json_null());
    if (in->unknown.size) put_text(&w, "unknown_keys", in->unknown.bytes, in->unknown.size);
    put(&w, "runs", json_boolean(in->problem.status == REEL_OK));
    if (in->problem.status == REEL_OK)
        put_name(&w, "problem", NULL);
    else
        put_message(&w, "problem", &in->problem);
    return finish(&w);
}

enum reel_status reel_model_inspect(const char *path, char **json, struct reel_error *err) {
    if (!json) return err_set(err, REEL_E_ARGUMENT, "json is NULL");
    *json = NULL;
    if (!path) return err_set(err, REEL_E_ARGUMENT, "path is NULL");
    struct inspection in = { 0 };
    enum reel_status status = examine(&in, path, err);
    if (status == REEL_OK) {
        json_t *object = describe(&in);
        status = object ? json_write(json, object, "the description of a model", err)
                        : err_memory(err, "the description of a model", 0);
        json_decref(object);
    }
    inspection_release(&in);
    if (status == REEL_OK && err) *err = (struct reel_error){ 0 };
    return status;
}

/* ---- the plan for a GPU ---------------------------------------------------------------------- */

static enum reel_status find_gpu(struct gpu_limits *limits, const char *name,
                                 struct reel_error *err) {
    const struct backend_folders folders = { 0 };
    struct device device;
    const struct gpu_limits *known = name ? plan_known_gpu(name) : NULL;
    if (known) {
        *limits = *known;
        return REEL_OK;
    }
    if (name)
        return err_set(err, REEL_E_ARGUMENT, "GPU \"%s\" is unknown; known are %s", name,
                       plan_known_gpus);
    enum reel_status status = device_choose(&device, "gpu", &folders, err);
    return status == REEL_OK
               ? device.ops->machine->gpu_limits(limits, &device.devices, &folders, err)
               : status;
}

/* The formats that hold the weights as they are stored, where they stay so. */
static enum reel_status find_formats(const struct inspection *in, enum narrow_wish wish,
                                     int formats[TAPE_N_PHASES], struct reel_error *err) {
    struct weights weights = { 0 };
    enum reel_status status =
        weights_map(&weights, &in->config, &in->tensors, in->source.is_gguf, err);
    if (status == REEL_OK && plan_keeps_narrow(wish, &weights)) plan_stored(&weights, formats);
    weights_release(&weights);
    return status;
}

static enum reel_status print_plan(const struct inspection *in,
                                   const struct reel_plan_options *options, struct buffer *text,
                                   struct reel_error *err) {
    struct gpu_limits limits;
    struct plan plan;
    struct plan_options wishes = { 0 };
    int narrow = NARROW_NEVER;
    if (in->problem.status != REEL_OK) {
        return err_set(err, in->problem.status, "%s", in->problem.text);
    }
    const enum kv_form form = kv_form_of(options->kv);
    if (form == KV_FORMS)
        return err_set(err, REEL_E_ARGUMENT, "kv is \"%.100s\"; allowed is bf16, int8 or fp8",
                       options->kv);
    enum reel_status status = device_gpus()->wishes(&wishes, &narrow, options->gpu_options, err);
    wishes.kv_form = (int)form;
    if (status == REEL_OK) status = find_gpu(&limits, options->gpu, err);
    if (status == REEL_OK && (options->n_gpus < 0 || options->n_gpus > BACKEND_MOST_DEVICES))
        status = err_set(err, REEL_E_ARGUMENT, "%d GPUs: 1 to %d can share a model",
                         options->n_gpus, BACKEND_MOST_DEVICES);
    if (status == REEL_OK && options->n_gpus) limits.n_gpus = options->n_gpus;
    if (status == REEL_OK && narrow != NARROW_NEVER)
        status = find_formats(in, (enum narrow_wish)narrow, wishes.formats, err);
    if (status == REEL_OK) status = plan_make(&plan, &in->config, &limits, &wishes, err);
    return status == REEL_OK ? plan_print(&plan, &in->config, text, err) : status;
}

enum reel_status reel_model_plan(const char *path, const char *gpu, char **text,
                                 struct reel_error *err) {
    const struct reel_plan_options options = { .size = sizeof options, .gpu = gpu };
    return reel_model_plan_with(path, &options, text, err);
}

enum reel_status reel_model_plan_with(const char *path, const struct reel_plan_options *given,
                                      char **text, struct reel_error *err) {
    struct reel_plan_options options;
    if (!text) return err_set(err, REEL_E_ARGUMENT, "text is NULL");
    *text = NULL;
    if (!path) return err_set(err, REEL_E_ARGUMENT, "path is NULL");
    enum reel_status status =
        struct_read(&options, sizeof options, given, "reel_plan_options", err);
    if (status != REEL_OK) return status;
    struct inspection in = { 0 };
    struct buffer page = { 0 };
    status = examine(&in, path, err);
    if (status == REEL_OK) status = print_plan(&in, &options, &page, err);
    if (status == REEL_OK) {
        *text = buffer_detach(&page, NULL);
        err_clear(err);
    }
    buffer_release(&page);
    inspection_release(&in);
    return status;
}
