#include "cli/open_model.h"

#include "base/memory.h"

#include "cli/demo_model.h"
#include "cli/fetch_model.h"
#include "cli/folders.h"
#include "cli/gpu_options.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "cli/progress.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum reel_status open_inside(struct reel_model **model, const char *name,
                                    const struct reel_model_options *options,
                                    struct reel_error *err) {
    int n = 0;
    const struct reel_memory_file *files = demo_model_files(name, &n);
    if (n == 0)
        return err_set(
            err, REEL_E_NOT_FOUND,
            "%s: this reel was built without that model (its folder in models was empty)", name);
    return reel_model_open_memory(model, name, files, n, options, err);
}

static bool wants_pull(const struct cli_args *args, const char *name) {
    char question[400];
    const char *endpoint = getenv("HF_ENDPOINT");
    if (cli_has(args, "pull")) return true;
    if (!fetch_can_ask()) return false;
    snprintf(question, sizeof question, "%s is not here. Fetch it from %.200s?", name,
             endpoint && endpoint[0] ? endpoint : HUB_DEFAULT_MIRROR);
    return fetch_ask(question, true);
}

enum reel_status cli_model_path(char **path, const struct cli_args *args, const char *name,
                                struct reel_error *err) {
    struct hub_name repo;
    struct hub_pulled pulled = { 0 };
    enum reel_status status = model_path_find(path, name, err);
    if (status != REEL_E_NOT_FOUND || !model_path_is_pullable(&repo, name) ||
        !wants_pull(args, name))
        return status;
    struct fetch fetch = { .repo = repo.repo, .what = &repo.what, .n_what = repo.what != NULL };
    status = fetch_model(&fetch, &pulled, err);
    if (status == REEL_OK) status = model_path_find(path, pulled.name, err);
    hub_pulled_release(&pulled);
    return status;
}

static enum reel_status open_path(struct reel_model **model, const struct cli_args *args,
                                  const char *name, const struct reel_model_options *options,
                                  struct reel_error *err) {
    char *path = NULL;
    enum reel_status status = cli_model_path(&path, args, name, err);
    if (status == REEL_OK) status = reel_model_open(model, path, options, err);
    mem_free(path);
    return status;
}

/* *cache (caller frees) stays NULL where there is none: it is a convenience, so nothing is said. */
static void find_cache(char **cache, const struct cli_args *args) {
    *cache = NULL;
    if (cli_has(args, "no-cache") || folder_of_cache(cache, NULL) != REEL_OK) return;
    if (folder_make(*cache, NULL) == REEL_OK) return;
    mem_free(*cache);
    *cache = NULL;
}

enum reel_status cli_tokenizer_open(struct reel_tokenizer **tok, const struct cli_args *args,
                                    const char *name, struct reel_error *err) {
    char *path = NULL, *cache = NULL;
    find_cache(&cache, args);
    enum reel_status status = cli_model_path(&path, args, name, err);
    if (status == REEL_OK) status = reel_tokenizer_open(tok, path, cache, err);
    mem_free(path);
    mem_free(cache);
    return status;
}

void cli_log(void *user, enum reel_log_level level, const char *text) {
    const struct cli_log *log = user;
    if (level > REEL_LOG_WARNING && !(log->verbose && level == REEL_LOG_INFO)) return;
    progress_end(log->progress);
    fprintf(stderr, "reel: %s\n", text);
}

/* Instead of, or before, what was typed. */
struct opening {
    const char *reference;       /* the plain reference's path, to run on it; or NULL */
    enum reel_rounding rounding; /* of the reference */
    const char *device;          /* or NULL */
    const char *gpu_options;     /* or NULL */
    bool stored;                 /* weights as the file has them */
    bool guesses;                /* it guesses for another model, and answers nobody */
};

static enum reel_rounding rounding_of(const struct cli_args *args) {
    const char *name = cli_text(args, "rounding", "fast");
    if (strcmp(name, "faithful") == 0) return REEL_ROUNDING_FAITHFUL;
    return strcmp(name, "exact") == 0 ? REEL_ROUNDING_EXACT : REEL_ROUNDING_FAST;
}

static bool is_auto(const char *name) { return !name || strcmp(name, "auto") == 0; }

/* Options that exclude each other, before the library would say so in its own words. */
static enum reel_status check_processor(const struct cli_args *args, const struct opening *as,
                                        struct reel_error *err) {
    const char *device = as->device ? as->device : cli_text(args, "device", NULL);
    const char *path = cli_text(args, "cpu-path", NULL);
    const char *rounding = cli_text(args, "rounding", "fast");
    const bool on_gpu = !is_auto(device) && strcmp(device, "cpu") != 0;
    const bool slow = strcmp(rounding, "fast") != 0;
    if (as->reference) return REEL_OK;
    if (slow && on_gpu)
        return err_set(err, REEL_E_ARGUMENT, "--rounding %s is of the CPU; --device %s excludes it",
                       rounding, device);
    if (!is_auto(path) && on_gpu)
        return err_set(err, REEL_E_ARGUMENT, "--cpu-path %s is of the CPU; --device %s excludes it",
                       path, device);
    if (slow && !is_auto(path) && strncmp(path, "reference", strlen("reference")) != 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "--rounding %s runs with --cpu-path reference; %s excludes it", rounding,
                       path);
    return REEL_OK;
}

#define MAX_TEMPLATE_BYTES ((size_t)4 << 20)

static bool is_template_text(const char *text) { return strstr(text, "{{") || strstr(text, "{%"); }

/* The text of a template that --chat-template names as a file; stays empty for a text and for the
 * name of a built-in one, of which a file of that name takes nothing away. */
static enum reel_status read_template(struct buffer *out, const struct cli_args *args,
                                      struct reel_error *err) {
    const char *given = cli_text(args, "chat-template", NULL);
    const struct cli_option *option = cli_find_option(args->command, "chat-template");
    if (!given || is_template_text(given) || cli_is_word(option->choices, given)) return REEL_OK;
    enum reel_status status = input_read_path(given, MAX_TEMPLATE_BYTES, out, err);
    if (status != REEL_OK) return status;
    if (out->bytes && strlen(out->bytes) == out->size && is_template_text(out->bytes))
        return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: no template in Jinja, which holds {{ or {%%", given);
}

/* The folder of --draft-head; *head (caller frees) stays NULL where it is not given, or the command
 * has no such option. */
static enum reel_status find_head(char **head, const struct cli_args *args,
                                  struct reel_error *err) {
    static const char option[] = "draft-head";
    const char *name = cli_find_option(args->command, option) ? cli_text(args, option, NULL) : NULL;
    return name ? cli_model_path(head, args, name, err) : REEL_OK;
}

static enum reel_status open_as(struct reel_model **model, const struct cli_args *args,
                                const char *name, const struct opening *as,
                                struct reel_error *err) {
    struct progress progress;
    struct cli_log log = { &progress, cli_has(args, "verbose") };
    char *cache = NULL, *gpu_options = NULL, *head = NULL;
    struct buffer template = { 0 };
    enum reel_status status = check_processor(args, as, err);
    if (status == REEL_OK && !as->guesses) status = read_template(&template, args, err);
    if (status == REEL_OK && !as->guesses && !as->reference) status = find_head(&head, args, err);
    if (status == REEL_OK) status = gpu_options_join(&gpu_options, args, as->gpu_options, err);
    if (status != REEL_OK) {
        mem_free(head);
        buffer_release(&template);
        return status;
    }
    struct reel_model_options options = {
        .size = sizeof options,
        .device = as->device ? as->device : cli_text(args, "device", NULL),
        .cpu_path = as->reference ? as->reference : cli_text(args, "cpu-path", NULL),
        .n_threads = (int)cli_integer(args, "threads", 0),
        .prompt_slice = (int)cli_integer(args, "prompt-slice", 0),
        .rounding = as->reference ? as->rounding : rounding_of(args),
        .chat_template = as->guesses      ? NULL
                         : template.bytes ? template.bytes
                                          : cli_text(args, "chat-template", NULL),
        .chat_template_from = template.bytes ? cli_text(args, "chat-template", NULL) : NULL,
        .progress = progress_update,
        .progress_user = &progress,
        .gpu_options = gpu_options,
        .nvrtc_dir = cli_text(args, "nvrtc-dir", NULL),
        .weights = as->stored ? NULL : cli_text(args, "weights", NULL),
        .kv = cli_text(args, "kv", NULL),
        .draft_head = head,
        .log = cli_log,
        .log_user = &log,
    };
    find_cache(&cache, args);
    options.cache_dir = cache;
    progress_start(&progress);
    status = model_path_is_inside(name) ? open_inside(model, name, &options, err)
                                        : open_path(model, args, name, &options, err);
    progress_end(&progress);
    mem_free(gpu_options);
    mem_free(cache);
    mem_free(head);
    buffer_release(&template);
    return status;
}

enum reel_status cli_model_open(struct reel_model **model, const struct cli_args *args,
                                const char *name, struct reel_error *err) {
    return open_as(model, args, name, &(struct opening){ 0 }, err);
}

enum reel_status cli_model_open_for_many(struct reel_model **model, const struct cli_args *args,
                                         const char *name, struct reel_error *err) {
    return open_as(model, args, name, &(struct opening){ .gpu_options = "columns_wait=2" }, err);
}

static bool is_number(const char *text) {
    return text[0] && strspn(text, "0123456789") == strlen(text);
}

/* Whether the draft model is of use to `model`, which may take no guesses: *useful. */
static enum reel_status check_takes(bool *useful, const struct reel_model *model, bool wanted,
                                    struct reel_error *err) {
    const struct reel_model_info info = cli_model_info(model);
    *useful = info.most_drafts > 0;
    if (*useful) return REEL_OK;
    if (wanted)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "--speculate draft: %s checks no guesses on this device and path (%s, %s)",
                       info.name, info.backend, info.backend_path);
    fprintf(stderr,
            "reel: %s checks no guesses on this device and path (%s, %s); --draft is passed over\n",
            info.name, info.backend, info.backend_path);
    return REEL_OK;
}

enum reel_status cli_draft_open(struct reel_model **draft, const struct reel_model *model,
                                const struct cli_args *args, struct reel_error *err) {
    struct reel_error why = { 0 };
    bool useful = true;
    const char *name = cli_text(args, "draft", NULL);
    const char *kind = cli_text(args, "speculate", "auto");
    const bool draft_kind = strcmp(kind, "draft") == 0;
    *draft = NULL;
    if (strcmp(kind, "eagle3") == 0 && !cli_text(args, "draft-head", NULL))
        return err_set(err, REEL_E_ARGUMENT,
                       "--speculate eagle3 needs --draft-head FOLDER, the head that guesses");
    if (!name && draft_kind)
        return err_set(err, REEL_E_ARGUMENT,
                       "--speculate draft needs --draft MODEL, the model that guesses");
    if (!name || strcmp(kind, "off") == 0) return REEL_OK;
    if (!draft_kind && strcmp(kind, "auto") != 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "--draft is for --speculate draft or auto; --speculate %s has no use for it",
                       kind);
    enum reel_status status = REEL_OK;
    if (model) status = check_takes(&useful, model, draft_kind, err);
    if (status != REEL_OK || !useful) return status;
    status = open_as(draft, args, name, &(struct opening){ .guesses = true }, &why);
    if (status == REEL_OK) return status;
    return err_set(err, status, "%s%s", why.text,
                   status == REEL_E_NOT_FOUND && is_number(name)
                       ? "; --draft names a model, and --draft-max is the number of guesses"
                       : "");
}

enum reel_status cli_model_open_stored(struct reel_model **model, const struct cli_args *args,
                                       const char *name, struct reel_error *err) {
    return open_as(model, args, name, &(struct opening){ .stored = true }, err);
}

enum reel_status cli_model_open_reference(struct reel_model **model, const struct cli_args *args,
                                          const char *name, const char *device_weight_type,
                                          enum reel_rounding rounding, struct reel_error *err) {
    /* bf16 is the only type that a device rounds weights to */
    const char *path = device_weight_type ? "reference-bf16" : "reference";
    return open_as(model, args, name,
                   &(struct opening){ .reference = path, .rounding = rounding, .device = "cpu" },
                   err);
}

enum reel_status cli_model_open_gpu(struct reel_model **model, const struct cli_args *args,
                                    const char *name, const char *gpu_options,
                                    struct reel_error *err) {
    const char *device = cli_text(args, "device", "gpu");
    if (strcmp(device, "auto") == 0) device = "gpu";
    if (strcmp(device, "cpu") == 0)
        return err_set(err, REEL_E_ARGUMENT, "reel %s needs a GPU; --device cpu has none",
                       args->command->name);
    return open_as(model, args, name,
                   &(struct opening){ .device = device, .gpu_options = gpu_options }, err);
}

struct reel_model_info cli_model_info(const struct reel_model *model) {
    struct reel_model_info info = { .size = sizeof info };
    enum reel_status status = reel_model_get_info(model, &info, NULL);
    assert(status == REEL_OK);
    (void)status;
    return info;
}

enum reel_status cli_refuse_template(const struct reel_model_info *info, const char *more,
                                     struct reel_error *err) {
    if (info->chat_template_problem)
        return err_set(
            err, REEL_E_UNSUPPORTED,
            "the model's chat template cannot be evaluated: %s; --chat-template gives it "
            "another%s",
            info->chat_template_problem, more);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "the model has no chat template; --chat-template gives it one%s", more);
}

enum reel_status cli_check_positions(const struct reel_model *model, int n, const char *options,
                                     struct reel_error *err) {
    const struct reel_model_info info = cli_model_info(model);
    if (n <= info.max_context) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "%s: %d positions; %s was made for %d", options, n,
                   info.name, info.max_context);
}

static void tell_of_draft(const struct reel_model *model, const struct reel_model *draft) {
    const struct reel_model_info own = cli_model_info(model), other = cli_model_info(draft);
    fprintf(stderr,
            "reel: %s guesses for %s: %.1f MB of weights, and %.1f KB for each position beside its "
            "%.1f\n",
            other.name, own.name, (double)other.weight_bytes / 1e6,
            (double)other.kv_token_bytes / 1e3, (double)own.kv_token_bytes / 1e3);
}

enum reel_status cli_session_open(struct reel_session **session, const struct reel_model *model,
                                  const struct reel_model *draft, const struct cli_args *args,
                                  struct progress *progress, struct reel_error *err) {
    struct reel_session_options options = {
        .size = sizeof options,
        .max_context = (int)cli_integer(args, "ctx", 0),
        .progress = progress ? progress_update : NULL,
        .progress_user = progress,
        .speculation = cli_find_option(args->command, "speculate")
                           ? cli_speculation(args, REEL_SPECULATION_AUTO)
                           : REEL_SPECULATION_OFF,
        .draft_model = draft,
    };
    struct reel_error why = { 0 };
    enum reel_status status = cli_check_positions(model, options.max_context, "--ctx", err);
    if (status != REEL_OK) return status;
    status = reel_session_open(session, model, &options, &why);
    if (status == REEL_OK && draft && cli_has(args, "verbose")) tell_of_draft(model, draft);
    if (status == REEL_OK) return status;
    return err_set(err, status, "%s%s", why.text,
                   status == REEL_E_MEMORY ? "; --ctx N with fewer positions takes less" : "");
}

static enum reel_status random_seed(uint64_t *seed, struct reel_error *err) {
    FILE *f = fopen("/dev/urandom", "rb");
    bool good = f && fread(seed, sizeof *seed, 1, f) == 1;
    if (f) fclose(f);
    if (!good) return err_set(err, REEL_E_IO, "/dev/urandom: %s; give --seed", strerror(errno));
    *seed >>= 32; /* short enough to type again */
    return REEL_OK;
}

void cli_sampling_typed(struct reel_sampling *s, const struct cli_args *args) {
    s->temperature = (float)cli_real(args, "temp", s->temperature);
    s->top_k = (int)cli_integer(args, "top-k", s->top_k);
    s->top_p = (float)cli_real(args, "top-p", s->top_p);
    s->min_p = (float)cli_real(args, "min-p", s->min_p);
    s->repetition_penalty = (float)cli_real(args, "repeat-penalty", s->repetition_penalty);
    s->presence_penalty = (float)cli_real(args, "presence-penalty", s->presence_penalty);
    s->frequency_penalty = (float)cli_real(args, "frequency-penalty", s->frequency_penalty);
    s->seed = (uint64_t)cli_integer(args, "seed", (int64_t)s->seed);
}

enum reel_speculation cli_speculation(const struct cli_args *args, enum reel_speculation fallback) {
    const char *kind = cli_text(args, "speculate", NULL);
    const bool guesses = cli_text(args, "draft", NULL) || cli_text(args, "draft-head", NULL);
    if (!kind) return guesses ? REEL_SPECULATION_AUTO : fallback;
    return strcmp(kind, "off") == 0      ? REEL_SPECULATION_OFF
           : strcmp(kind, "ngram") == 0  ? REEL_SPECULATION_NGRAM
           : strcmp(kind, "mtp") == 0    ? REEL_SPECULATION_MTP
           : strcmp(kind, "draft") == 0  ? REEL_SPECULATION_DRAFT
           : strcmp(kind, "eagle3") == 0 ? REEL_SPECULATION_EAGLE3
                                         : REEL_SPECULATION_AUTO;
}

enum reel_status cli_sampling(struct reel_sampling *s, const struct reel_model *model,
                              const struct cli_args *args, struct reel_error *err) {
    *s = (struct reel_sampling){ .size = sizeof *s };
    enum reel_status status = reel_model_default_sampling(model, s, err);
    if (status != REEL_OK) return status;
    cli_sampling_typed(s, args);
    return cli_has(args, "seed") ? REEL_OK : random_seed(&s->seed, err);
}
