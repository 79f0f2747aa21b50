/* Opening models, and the public calls that only look at one. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/struct_size.h"
#include "model/answer_reader.h"
#include "model/chat_answer.h"
#include "plan/memory_plan.h"
#include "runtime/device.h"
#include "runtime/model_handle.h"

#include <string.h>

/* ---- opening ---- */

/* Only the CPU can do what was asked for. */
static bool wants_cpu(const struct reel_model_options *o) {
    return !device_is_auto(o->cpu_path) || o->rounding != REEL_ROUNDING_FAST;
}

static void warn_of_cpu(reel_log_fn log, void *user, const struct reel_error *why) {
    struct reel_error text;
    if (!log) return;
    err_set(&text, REEL_OK, "on the CPU, because the GPU cannot be used: %s", why->text);
    log(user, REEL_LOG_WARNING, text.text);
}

static enum reel_status check_gpu_options(const struct reel_model_options *o,
                                          struct reel_error *err) {
    if (o->rounding != REEL_ROUNDING_FAST)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "device \"%s\": %s rounding is done on the CPU only; use device \"cpu\"",
                       o->device, o->rounding == REEL_ROUNDING_FAITHFUL ? "faithful" : "exact");
    if (!device_is_auto(o->cpu_path))
        return err_set(err, REEL_E_ARGUMENT, "device \"%s\" has no CPU path \"%s\"", o->device,
                       o->cpu_path);
    return REEL_OK;
}

/* The device, and in *second the backend that is tried when it cannot run the model, or NULL. */
static enum reel_status choose_device(const struct reel_model_options *o, struct device *device,
                                      const struct backend_ops **second, struct reel_error *err) {
    const struct backend_folders folders = { o->cuda_dir, o->nvrtc_dir };
    const bool any = device_is_auto(o->device);
    struct reel_error why;
    *second = NULL;
    enum reel_status status =
        device_choose(device, any && wants_cpu(o) ? "cpu" : o->device, &folders, &why);
    if (status == REEL_E_ARGUMENT) return err_set(err, status, "%s", why.text);
    if (status != REEL_OK) return err_set(err, status, "device \"%s\": %s", o->device, why.text);
    if (device->why_not.text[0]) warn_of_cpu(o->log, o->log_user, &device->why_not);
    if (device->ops == &cpu_backend) return REEL_OK;
    if (any) *second = &cpu_backend;
    return check_gpu_options(o, err);
}

static enum reel_status check_options(const struct reel_model_options *options,
                                      struct reel_error *err) {
    if (options->n_threads < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "n_threads is %d; allowed is 1 or more, or 0 for one per core",
                       options->n_threads);
    if (options->prompt_slice < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "prompt_slice is %d; allowed is 1 or more, or 0 for as many as are fastest",
                       options->prompt_slice);
    if ((unsigned)options->rounding > REEL_ROUNDING_EXACT)
        return err_set(err, REEL_E_ARGUMENT, "rounding is %d; it is none of enum reel_rounding",
                       (int)options->rounding);
    if (weight_form_of(options->weights) == WEIGHTS_FORMS)
        return err_set(err, REEL_E_ARGUMENT,
                       "weights are \"%.100s\"; allowed is bf16, int8, int4 or fp8",
                       options->weights);
    if (kv_form_of(options->kv) == KV_FORMS)
        return err_set(err, REEL_E_ARGUMENT, "kv is \"%.100s\"; allowed is bf16, int8 or fp8",
                       options->kv);
    return REEL_OK;
}

/* "auto" takes the CPU for a model that the GPU cannot run or that does not fit into its memory. */
static enum reel_status start(struct reel_model *handle, const struct backend_ops *first,
                              const struct backend_ops *second,
                              const struct backend_options *options, struct reel_error *err) {
    struct reel_error why;
    if (!second) return model_handle_start(handle, first, options, err);
    enum reel_status status = model_handle_start(handle, first, options, &why);
    if (status != REEL_E_UNSUPPORTED && status != REEL_E_MEMORY)
        return status == REEL_OK ? REEL_OK : err_set(err, status, "%s", why.text);
    warn_of_cpu(options->log, options->log_user, &why);
    return model_handle_start(handle, second, options, err);
}

static void tell_what_opened(const struct reel_model *handle,
                             const struct reel_model_options *options) {
    const struct backend_info *info = &handle->backend_info;
    struct reel_error text;
    if (!options->log) return;
    err_set(&text, REEL_OK, "%s: on %s, %s, %d thread%s", handle->model.name, info->name,
            info->path, info->n_threads, info->n_threads == 1 ? "" : "s");
    options->log(options->log_user, REEL_LOG_INFO, text.text);
}

/* Takes over source, also when it fails. */
static enum reel_status open_source(struct reel_model **out, struct model_source *source,
                                    const struct reel_model_options *options,
                                    const struct device *device, const struct backend_ops *second,
                                    double driver_ms, struct reel_error *err) {
    struct reel_model *handle = NULL;
    const struct model_load_options load = { .chat_template = options->chat_template,
                                             .chat_template_from = options->chat_template_from,
                                             .cache_dir = options->cache_dir,
                                             .weights = weight_form_of(options->weights),
                                             .draft_head = options->draft_head,
                                             .n_threads = options->n_threads,
                                             .progress = options->progress,
                                             .progress_user = options->progress_user };
    const struct backend_options backend = { .devices = device->devices,
                                             .cpu_path = options->cpu_path,
                                             .n_threads = options->n_threads,
                                             .rounding = options->rounding,
                                             .kv = kv_form_of(options->kv),
                                             .cache_dir = options->cache_dir,
                                             .gpu_options = options->gpu_options,
                                             .prompt_slice = options->prompt_slice,
                                             .cuda_dir = options->cuda_dir,
                                             .nvrtc_dir = options->nvrtc_dir,
                                             .driver_ms = driver_ms,
                                             .progress = options->progress,
                                             .progress_user = options->progress_user,
                                             .log = options->log,
                                             .log_user = options->log_user };
    enum reel_status status = mem_zeroed(&handle, 1, sizeof *handle, "a model", err);
    if (status != REEL_OK) {
        model_source_release(source);
        return status;
    }
    handle->prompt_slice = options->prompt_slice;
    status = model_load(&handle->model, source, &load, err);
    if (status == REEL_OK) status = start(handle, device->ops, second, &backend, err);
    if (status != REEL_OK) {
        reel_model_close(handle);
        return status;
    }
    tell_what_opened(handle, options);
    *out = handle;
    return REEL_OK;
}

enum reel_status reel_model_open(struct reel_model **out, const char *path,
                                 const struct reel_model_options *given, struct reel_error *err) {
    struct reel_model_options options;
    struct model_source source = { 0 };
    const struct backend_ops *second = NULL;
    struct device device;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out path", (const void *const[]){ out, path });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_model_options", err);
    if (status == REEL_OK) status = check_options(&options, err);
    const double begin = clock_ms();
    if (status == REEL_OK) status = choose_device(&options, &device, &second, err);
    const double driver_ms = clock_ms() - begin;
    if (status == REEL_OK) status = model_source_open(&source, path, err);
    return status == REEL_OK ? open_source(out, &source, &options, &device, second, driver_ms, err)
                             : status;
}

enum reel_status reel_model_open_memory(struct reel_model **out, const char *name,
                                        const struct reel_memory_file *files, int n_files,
                                        const struct reel_model_options *given,
                                        struct reel_error *err) {
    struct reel_model_options options;
    struct model_source source = { 0 };
    const struct backend_ops *second = NULL;
    struct device device;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out files", (const void *const[]){ out, files });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_model_options", err);
    if (status == REEL_OK) status = check_options(&options, err);
    const double begin = clock_ms();
    if (status == REEL_OK) status = choose_device(&options, &device, &second, err);
    const double driver_ms = clock_ms() - begin;
    if (status == REEL_OK)
        status = model_source_open_memory(&source, name ? name : "a model in memory", files,
                                          n_files, err);
    return status == REEL_OK ? open_source(out, &source, &options, &device, second, driver_ms, err)
                             : status;
}

void reel_model_close(struct reel_model *handle) {
    if (!handle) return;
    model_handle_stop(handle);
    model_release(&handle->model);
    mem_free(handle);
}

/* ---- looking ---- */

/* Why the template that a model carries is not evaluated; NULL where nothing is wrong with it. */
static const char *template_problem(const struct chat_template *chat) {
    return chat->source && !chat->parsed ? chat->problem.text : NULL;
}

/* The model as its makers and its backend describe it. */
static void fill_info(const struct reel_model *handle, struct reel_model_info *info) {
    const struct model_config *c = &handle->model.config;
    const struct weights *w = &handle->model.weights;
    const bool bf16 = handle->backend_info.weights_are_bf16;
    struct memory_plan plan;
    memory_plan_fill(&plan, c, w, 1);
    const uint64_t token_bytes = handle->backend_info.token_bytes ? handle->backend_info.token_bytes
                                 : bf16                           ? plan.token_bytes_bf16
                                                                  : plan.token_bytes;
    *info = (struct reel_model_info){
        .size = sizeof *info,
        .name = handle->model.name,
        .family = model_family_name(c->family),
        .weight_type = w->quantized      ? weight_form_name(w->quantized->form)
                       : w->coded.format ? w->coded.format
                                         : dtype_name(w->main_type),
        .backend = handle->backend_info.name,
        .backend_path = handle->backend_info.path,
        .n_parameters = w->n_parameters,
        .weight_bytes = w->n_bytes,
        .token_bytes = token_bytes,
        .kv_token_bytes = handle->backend_info.state_position_bytes,
        .n_threads = handle->backend_info.n_threads,
        .n_layers = c->n_layers,
        .hidden = c->hidden,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .intermediate = c->intermediate,
        .vocab = c->vocab,
        .max_context = c->max_context,
        .n_stop_ids = c->n_stop_ids,
        .stop_ids = c->stop_ids,
        .chat_template = chat_template_name(&handle->model.chat),
        .chat_template_sha256 = handle->model.chat.source ? handle->model.chat.hash : NULL,
        .driver_ms = handle->backend_info.driver_ms,
        .compile_ms = handle->backend_info.compile_ms,
        .load_ms = handle->backend_info.load_ms,
        .chat_thinks = chat_thinks(&handle->model.chat),
        .chat_template_problem = template_problem(&handle->model.chat),
        .device_weight_type = bf16 ? dtype_name(DTYPE_BF16) : NULL,
        .kv_type = kv_form_name(handle->kv),
        .most_columns =
            handle->backend_info.most_columns > 1 ? handle->backend_info.most_columns : 1,
        .token_weight_bits = 16 * (double)token_bytes / (double)plan.token_bytes_bf16,
        .most_drafts = handle->backend_info.drafts,
        .draft_layers = handle->backend_info.guesses,
    };
}

enum reel_status reel_model_get_info(const struct reel_model *handle, struct reel_model_info *info,
                                     struct reel_error *err) {
    struct reel_model_info own;
    err_clear(err);
    enum reel_status status = err_if_null(err, "model", (const void *const[]){ handle });
    if (status != REEL_OK) return status;
    fill_info(handle, &own);
    return struct_write(info, &own, sizeof own, "reel_model_info", err);
}

enum reel_status reel_model_default_sampling(const struct reel_model *handle,
                                             struct reel_sampling *sampling,
                                             struct reel_error *err) {
    err_clear(err);
    enum reel_status status = err_if_null(err, "model", (const void *const[]){ handle });
    if (status != REEL_OK) return status;
    const struct model_config *c = &handle->model.config;
    struct reel_sampling own = { .size = sizeof own,
                                 .temperature = c->sampling.temperature,
                                 .top_k = c->sampling.top_k,
                                 .top_p = c->sampling.top_p,
                                 .min_p = c->sampling.min_p,
                                 .repetition_penalty = c->sampling.repetition_penalty };
    return struct_write(sampling, &own, sizeof own, "reel_sampling", err);
}

const struct reel_tokenizer *reel_model_tokenizer(const struct reel_model *handle) {
    return handle ? handle->model.tokenizer : NULL;
}

/* ---- conversations ---- */

static enum reel_status read_options(struct reel_chat_options *options,
                                     const struct reel_chat_options *given,
                                     struct reel_error *err) {
    enum reel_status status =
        struct_read(options, sizeof *options, given, "reel_chat_options", err);
    if (status != REEL_OK || (unsigned)options->thinking <= REEL_THINKING_OFF) return status;
    return err_set(err, REEL_E_ARGUMENT, "thinking is %d; it is none of enum reel_thinking",
                   (int)options->thinking);
}

static enum reel_status render(const struct reel_model *handle, const struct reel_message *messages,
                               int n_messages, const struct reel_chat_options *given,
                               struct chat_text *text, struct reel_error *err) {
    struct reel_chat_options options;
    struct reel_message *own = NULL;
    enum reel_status status = read_options(&options, given, err);
    if (status != REEL_OK) return status;
    if (n_messages < 0 || (n_messages > 0 && !messages))
        return err_set(err, REEL_E_ARGUMENT, "n_messages is %d with %s list", n_messages,
                       messages ? "a" : "no");
    status = struct_read_list(&own, sizeof *own, messages, n_messages, "reel_message", err);
    if (status == REEL_OK)
        status = chat_render(&handle->model.chat, own, n_messages, &options, text, err);
    mem_free(own);
    return status;
}

enum reel_status reel_chat_text(const struct reel_model *handle,
                                const struct reel_message *messages, int n_messages,
                                const struct reel_chat_options *options, char **text,
                                size_t *n_bytes, struct reel_error *err) {
    struct chat_text chat = { 0 };
    err_clear(err);
    if (text) *text = NULL;
    if (n_bytes) *n_bytes = 0;
    enum reel_status status = err_if_null(err, "model text", (const void *const[]){ handle, text });
    if (status == REEL_OK) status = render(handle, messages, n_messages, options, &chat, err);
    if (status == REEL_OK) status = buffer_append(&chat.text, "", 0, err); /* never NULL */
    if (status == REEL_OK) *text = buffer_detach(&chat.text, n_bytes);
    chat_text_release(&chat);
    return status;
}

enum reel_status reel_chat_ids(const struct reel_model *handle, const struct reel_message *messages,
                               int n_messages, const struct reel_chat_options *options,
                               int32_t **ids, size_t *n_ids, struct reel_error *err) {
    struct chat_text chat = { 0 };
    err_clear(err);
    if (ids) *ids = NULL;
    if (n_ids) *n_ids = 0;
    enum reel_status status =
        err_if_null(err, "model ids n_ids", (const void *const[]){ handle, ids, n_ids });
    if (status == REEL_OK) status = render(handle, messages, n_messages, options, &chat, err);
    if (status == REEL_OK)
        status =
            tokenizer_encode(handle->model.tokenizer, chat.pieces, chat.n_pieces, ids, n_ids, err);
    chat_text_release(&chat);
    return status;
}

bool reel_chat_opens_thinking(const struct reel_model *handle,
                              const struct reel_chat_options *given) {
    struct reel_chat_options options;
    return handle && read_options(&options, given, NULL) == REEL_OK &&
           chat_opens_thinking(&handle->model.chat, &options);
}

enum reel_status reel_chat_read_answer(const struct reel_model *handle,
                                       const struct reel_chat_options *given, const char *text,
                                       size_t n_bytes, struct reel_answer *answer,
                                       struct reel_error *err) {
    struct reel_chat_options options;
    struct chat_answer parts;
    err_clear(err);
    enum reel_status status =
        err_if_null(err, "model answer", (const void *const[]){ handle, answer });
    if (status == REEL_OK) status = read_options(&options, given, err);
    if (status == REEL_OK && n_bytes > 0 && !text)
        status = err_set(err, REEL_E_ARGUMENT, "%zu bytes of text at no address", n_bytes);
    if (status == REEL_OK && answer->size < sizeof *answer) /* its texts would be lost */
        status = err_set(err, REEL_E_ARGUMENT,
                         "struct reel_answer: size is %zu; set it to sizeof(struct reel_answer) "
                         "(%zu here)",
                         answer->size, sizeof *answer);
    if (status == REEL_OK)
        status = chat_answer_read(&parts, &handle->model.chat, &options, text, n_bytes, err);
    if (status != REEL_OK) return status;
    answer->reasoning = parts.reasoning;
    answer->content = parts.content;
    answer->tool_calls = parts.tool_calls;
    return REEL_OK;
}

void reel_answer_release(struct reel_answer *answer) {
    if (!answer || answer->size < sizeof *answer) return; /* nothing was put there */
    mem_free(answer->reasoning);
    mem_free(answer->content);
    mem_free(answer->tool_calls);
    answer->reasoning = answer->content = answer->tool_calls = NULL;
}

/* ---- answers as they are written ---- */

enum reel_status reel_answer_reader_open(struct reel_answer_reader **out,
                                         const struct reel_model *handle,
                                         const struct reel_answer_reader_options *given,
                                         struct reel_error *err) {
    struct reel_answer_reader_options options;
    struct reel_chat_options chat;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status =
        err_if_null(err, "out model options", (const void *const[]){ out, handle, given });
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_answer_reader_options", err);
    if (status == REEL_OK && !options.on_piece)
        status = err_set(err, REEL_E_ARGUMENT, "on_piece is NULL");
    if (status == REEL_OK) status = read_options(&chat, options.chat, err);
    if (status != REEL_OK) return status;
    return answer_reader_open(out, &handle->model.chat, &chat, &options, err);
}

enum reel_status reel_answer_reader_push(struct reel_answer_reader *reader, const char *text,
                                         size_t n_bytes, struct reel_error *err) {
    err_clear(err);
    enum reel_status status = err_if_null(err, "reader", (const void *const[]){ reader });
    if (status != REEL_OK) return status;
    if (n_bytes > 0 && !text)
        return err_set(err, REEL_E_ARGUMENT, "%zu bytes of text at no address", n_bytes);
    return answer_reader_push(reader, text, n_bytes, err);
}

enum reel_status reel_answer_reader_finish(struct reel_answer_reader *reader,
                                           struct reel_error *err) {
    err_clear(err);
    enum reel_status status = err_if_null(err, "reader", (const void *const[]){ reader });
    return status == REEL_OK ? answer_reader_finish(reader, err) : status;
}

void reel_answer_reader_close(struct reel_answer_reader *reader) { answer_reader_close(reader); }
