/* reel inspect: what is in a model file, and whether it fits this machine. */
#include "base/json.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/demo_folder.h"
#include "cli/gpu_options.h"
#include "cli/model_path.h"
#include "cli/open_model.h"
#include "cli/terminal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "json", .kind = CLI_FLAG, .help = "print everything as one JSON object" },
    { .name = "tensors", .kind = CLI_FLAG, .help = "list every tensor" },
    { .name = "plan",
      .kind = CLI_FLAG,
      .help = "show how a GPU's SMs would share the work, and the GPU memory that takes" },
    { .name = "gpu",
      .kind = CLI_TEXT,
      .argument = "NAME",
      .help = "the GPU of --plan: h200, rtx4090, ...; without it the first one here" },
    { .name = "gpus",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 8,
      .help = "the plan of --plan for N such GPUs that share the model; default 1" },
    { .name = "gpu-option",
      .kind = CLI_TEXT,
      .argument = "KEY=VALUE",
      .repeats = true,
      .help = "change the plan of --plan as --gpu-option of run does: narrow=1 keeps weights of 8 "
              "and 4 bits as they are" },
    { .name = "kv",
      .kind = CLI_CHOICE,
      .argument = "FORM",
      .choices = "bf16 int8 fp8",
      .help = "how sessions would keep keys and values, for the memory and --plan; default bf16" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static int64_t integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "none";
}

/* A text that the file's author chose. */
static void put_foreign(const json_t *object, const char *key) {
    const char *value = text(object, key);
    terminal_write(stdout, value, strlen(value));
}

static void row(const char *name) { printf("  %-16s", name); }

static void megabytes(int64_t bytes) { printf("%.1f MB", (double)bytes / 1e6); }

static void print_config(const json_t *c) {
    if (!json_is_object(c)) return;
    row("family");
    printf("%s, %lld layers, hidden %lld, intermediate %lld\n", text(c, "family"),
           (long long)integer(c, "layers"), (long long)integer(c, "hidden"),
           (long long)integer(c, "intermediate"));
    row("attention");
    printf("%lld heads, %lld of keys and values, of %lld each%s%s\n",
           (long long)integer(c, "heads"), (long long)integer(c, "kv_heads"),
           (long long)integer(c, "head_dim"),
           json_is_true(json_object_get(c, "qk_norm")) ? ", normed q and k" : "",
           json_is_true(json_object_get(c, "qkv_bias")) ? ", biases of q, k and v" : "");
    if (integer(c, "delta_layers")) {
        row("delta net");
        printf("%lld of the layers: %lld heads of keys, %lld of values, state %lld x %lld each\n",
               (long long)integer(c, "delta_layers"), (long long)integer(c, "delta_key_heads"),
               (long long)integer(c, "delta_value_heads"), (long long)integer(c, "delta_key_dim"),
               (long long)integer(c, "delta_value_dim"));
    }
    if (integer(c, "audio_layers")) {
        row("audio tower");
        printf(
            "%lld layers, hidden %lld, intermediate %lld, %lld heads, %lld channels of %lld bins\n",
            (long long)integer(c, "audio_layers"), (long long)integer(c, "audio_hidden"),
            (long long)integer(c, "audio_intermediate"), (long long)integer(c, "audio_heads"),
            (long long)integer(c, "audio_channels"), (long long)integer(c, "audio_bins"));
    }
    row("positions");
    printf("%lld, RoPE base %.10g, scaling %s", (long long)integer(c, "max_context"),
           json_number_value(json_object_get(c, "rope_theta")), text(c, "rope_scaling"));
    if (integer(c, "window")) printf(", window %lld", (long long)integer(c, "window"));
    putchar('\n');
    row("vocabulary");
    printf("%lld, output matrix %s\n", (long long)integer(c, "vocab"),
           json_is_true(json_object_get(c, "tied_output")) ? "tied to the embedding"
                                                           : "of its own");
    const json_t *ids = json_object_get(c, "stop_ids");
    if (json_array_size(ids) == 0) return;
    row("stop ids");
    for (size_t i = 0; i < json_array_size(ids); i++)
        printf("%s%lld", i ? ", " : "", (long long)json_integer_value(json_array_get(ids, i)));
    putchar('\n');
}

static void print_weights(const json_t *tensors) {
    row("parameters");
    printf("%.1f million\n", (double)integer(tensors, "parameters") / 1e6);
    if (integer(tensors, "skipped")) {
        row("not run");
        printf("%lld tensors of a vision tower or draft layers, ",
               (long long)integer(tensors, "skipped"));
        megabytes(integer(tensors, "skipped_bytes"));
        putchar('\n');
    }
    if (integer(tensors, "draft_parameters")) {
        row("draft layer");
        printf("%.1f million parameters, ", (double)integer(tensors, "draft_parameters") / 1e6);
        megabytes(integer(tensors, "draft_bytes"));
        putchar('\n');
    }
    row("tensors");
    printf("%lld in %lld file%s, ", (long long)integer(tensors, "count"),
           (long long)integer(tensors, "files"), integer(tensors, "files") == 1 ? "" : "s");
    megabytes(integer(tensors, "file_bytes"));
    putchar('\n');
    const char *type;
    json_t *amount;
    json_object_foreach(json_object_get(tensors, "types"), type, amount) {
        row("");
        printf("%-6s %5lld tensors, ", type, (long long)integer(amount, "tensors"));
        megabytes(integer(amount, "bytes"));
        putchar('\n');
    }
}

/* How narrow weights are stored. */
static void print_codes(const json_t *tensors) {
    if (!json_object_get(tensors, "bits_per_weight")) return;
    const bool coded = json_object_get(tensors, "format");
    row(coded ? "codes" : "weights");
    printf("%s%s, %.2f bits a weight", coded ? "" : "most ",
           text(tensors, coded ? "format" : "main_type"),
           json_real_value(json_object_get(tensors, "bits_per_weight")));
    if (!coded) {
        puts(" in all");
        return;
    }
    const char *wide = text(tensors, "wide");
    if (wide && *wide) printf("; wide: %s", wide);
    putchar('\n');
}

static void print_tokenizer(const json_t *tokenizer) {
    row("tokenizer");
    const json_t *files = json_object_get(tokenizer, "files");
    if (json_object_get(tokenizer, "kind"))
        printf("%s, %lld tokens; ", text(tokenizer, "kind"),
               (long long)integer(tokenizer, "tokens"));
    if (files) {
        size_t i;
        json_t *file;
        json_array_foreach(files, i, file) printf("%s%s", i ? ", " : "", json_string_value(file));
        if (json_array_size(files) == 0) fputs("none", stdout);
        putchar('\n');
    } else {
        put_foreign(tokenizer, "model");
        fputs(" (", stdout);
        put_foreign(tokenizer, "pre_tokenizer");
        putchar(')');
        if (json_object_get(tokenizer, "merges"))
            printf(", %lld merges", (long long)integer(tokenizer, "merges"));
        putchar('\n');
    }
    row("chat template");
    const char *name = text(tokenizer, "chat_template");
    const char *hash = text(tokenizer, "chat_template_sha256");
    if (strcmp(name, "none") == 0 && strcmp(hash, "none") != 0) {
        fputs("cannot be evaluated: ", stdout);
        put_foreign(tokenizer, "chat_template_problem");
        putchar('\n');
        return;
    }
    printf("%s\n", name);
    if (strcmp(name, "none") == 0) return;
    row("thinking");
    put_foreign(tokenizer, "thinking");
    putchar('\n');
    row("tool calls");
    put_foreign(tokenizer, "tool_calls");
    putchar('\n');
}

static void print_fits(int64_t total, int64_t available) {
    row("fits");
    if (available == 0) {
        puts("unknown: this system does not say how much memory is free");
        return;
    }
    printf("%s: ", total <= available ? "yes" : "no");
    megabytes(available);
    puts(" available");
}

/* `ctx` 0: the context the library would choose. Whether a model fits that does not run is nothing
 * to say. */
static void print_memory(const json_t *memory, int64_t ctx, const char *form, bool runs) {
    if (!json_is_object(memory)) return;
    const bool codes = strcmp(form, "bf16") != 0;
    int64_t per_position = integer(memory, codes ? "kv_codes_per_position" : "kv_per_position");
    int64_t context = ctx ? ctx : integer(memory, "context");
    int64_t kv = per_position * context; /* both below 2^31 in the library */
    int64_t total = integer(memory, "total") - integer(memory, "kv") + kv;
    int64_t available = integer(memory, "available");
    row("memory");
    megabytes(total);
    fputs(": weights ", stdout);
    megabytes(integer(memory, "weights"));
    printf(", KV cache ");
    if (codes) printf("(%s) ", form);
    megabytes(kv);
    printf(" for %lld positions", (long long)context);
    if (integer(memory, "state")) {
        fputs(", recurrent state ", stdout);
        megabytes(integer(memory, "state"));
    }
    putchar('\n');
    if (runs) print_fits(total, available);
    row("per token");
    megabytes(integer(memory, "token_bytes"));
    puts(" of weights read");
}

static void print_tensors(const json_t *tensors) {
    size_t i, d;
    json_t *tensor, *size;
    puts("\ntensors:");
    json_array_foreach(json_object_get(tensors, "list"), i, tensor) {
        char shape[100] = "";
        size_t n = 0;
        json_array_foreach(json_object_get(tensor, "shape"), d, size) {
            if (n < sizeof shape)
                n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? " x " : "",
                                      (long long)json_integer_value(size));
        }
        printf("  %-6s %-20s ", text(tensor, "type"), shape);
        put_foreign(tensor, "name");
        putchar('\n');
    }
}

static void print_human(const struct cli_args *args, const json_t *all) {
    const json_t *tensors = json_object_get(all, "tensors");
    printf("%s (%s)\n", args->arguments[0], text(all, "container"));
    print_config(json_object_get(all, "config"));
    print_weights(tensors);
    print_codes(json_object_get(all, "tensors"));
    print_tokenizer(json_object_get(all, "tokenizer"));
    if (json_object_get(all, "unknown_keys")) {
        row("unknown keys");
        put_foreign(all, "unknown_keys");
        putchar('\n');
    }
    print_memory(json_object_get(all, "memory"), cli_integer(args, "ctx", 0),
                 cli_text(args, "kv", "bf16"), json_is_true(json_object_get(all, "runs")));
    if (cli_has(args, "tensors")) print_tensors(tensors);
}

static enum reel_status show_plan(const struct cli_args *args, const char *path, char **plan,
                                  struct reel_error *err) {
    char *gpu_options = NULL;
    enum reel_status status = gpu_options_join(&gpu_options, args, NULL, err);
    const struct reel_plan_options wishes = { .size = sizeof wishes,
                                              .gpu = cli_text(args, "gpu", NULL),
                                              .gpu_options = gpu_options,
                                              .kv = cli_text(args, "kv", NULL),
                                              .n_gpus = (int)cli_integer(args, "gpus", 0) };
    if (status == REEL_OK) status = reel_model_plan_with(path, &wishes, plan, err);
    mem_free(gpu_options);
    return status;
}

/* *json, and with --plan *plan. */
static enum reel_status inspect(const struct cli_args *args, char **json, char **plan,
                                struct reel_error *err) {
    const char *name = args->arguments[0];
    char *path = NULL;
    bool demo = model_path_is_demo(name);
    enum reel_status status =
        demo ? demo_folder_make(&path, err) : cli_model_path(&path, args, name, err);
    if (status == REEL_OK) status = reel_model_inspect(path, json, err);
    if (status == REEL_OK && cli_has(args, "plan")) status = show_plan(args, path, plan, err);
    if (demo) demo_folder_remove(path);
    mem_free(path);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    char *json = NULL, *plan = NULL;
    json_t *all = NULL;
    if (cli_has(args, "gpu") && !cli_has(args, "plan"))
        return err_set(err, REEL_E_ARGUMENT, "--gpu goes with --plan");
    if (cli_has(args, "gpus") && !cli_has(args, "plan"))
        return err_set(err, REEL_E_ARGUMENT, "--gpus goes with --plan");
    if (cli_repeated(args, "gpu-option", 0) && !cli_has(args, "plan"))
        return err_set(err, REEL_E_ARGUMENT, "--gpu-option goes with --plan");
    if (cli_has(args, "json") && cli_has(args, "plan"))
        return err_set(err, REEL_E_ARGUMENT, "--plan is text for people, --json is not");
    enum reel_status status = inspect(args, &json, &plan, err);
    if (status == REEL_OK) status = json_read(&all, "the inspection", json, strlen(json), err);
    if (status == REEL_OK) {
        if (cli_has(args, "json"))
            puts(json);
        else
            print_human(args, all);
        if (plan) printf("\n%s", plan);
        const char *problem = json_string_value(json_object_get(all, "problem"));
        if (problem) status = err_set(err, REEL_E_UNSUPPORTED, "cannot run: %s", problem);
    }
    json_decref(all);
    reel_free(json);
    reel_free(plan);
    return status;
}

const struct cli_command cmd_inspect = {
    .name = "inspect",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "what is in a model file, and does it fit",
    .description = "Describes a model file without reading its weights: architecture, tensors, "
                   "tokenizer, chat template, and the memory it needs here. For a checkpoint that "
                   "reel does not run it says why, with exit status 6.\n\n"
                   "--plan works without a GPU when --gpu names one.",
    .groups = { &group, &cli_pull_group, &cli_context_group },
    .run = run,
};
