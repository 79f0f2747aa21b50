#include "cli/commands.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

const struct cli_command *const cli_commands[] = {
#define CLI_ENTRY(name) &cmd_##name,
    CLI_COMMANDS(CLI_ENTRY)
#undef CLI_ENTRY
        NULL
};

const struct cli_command *cli_find_command(const char *name) {
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

static enum reel_status refuse_unknown(const char *name, const char *more, struct reel_error *err) {
    const char *words[64];
    int n = 0;
    for (; cli_commands[n] && n < 62; n++)
        words[n] = cli_commands[n]->name;
    if (more) words[n++] = more;
    words[n] = NULL;
    const char *nearest = cli_nearest(name, words);
    for (int i = 0; cli_commands[i]; i++)
        if (cli_is_word(cli_commands[i]->others, name)) nearest = cli_commands[i]->name;
    if (nearest)
        return err_set(err, REEL_E_ARGUMENT, "\"%s\" is no command; did you mean %s?", name,
                       nearest);
    return err_set(err, REEL_E_ARGUMENT, "\"%s\" is no command; reel help lists them", name);
}

enum reel_status cli_need_command(const struct cli_command **command, const char *name,
                                  const char *more, struct reel_error *err) {
    *command = cli_find_command(name);
    return *command ? REEL_OK : refuse_unknown(name, more, err);
}

/* The text of a template, or a file with one. */
static bool is_template(const char *text) {
    return strstr(text, "{{") || strstr(text, "{%") || access(text, R_OK) == 0;
}

/* "gpu:0", "gpu:0,1", "gpu:all". */
static bool is_gpu_list(const char *text) {
    if (strncmp(text, "gpu:", 4) != 0) return false;
    if (strcmp(text + 4, "all") == 0) return true;
    for (text += 4;; text++) {
        const size_t digits = strspn(text, "0123456789");
        text += digits;
        if (digits == 0 || digits > 5 || (*text && *text != ',')) return false;
        if (!*text) return true;
    }
}

#define NVRTC_DIR                                                                                  \
    {                                                                                              \
        .name = "nvrtc-dir", .kind = CLI_TEXT, .argument = "FOLDER",                               \
        .help =                                                                                    \
            "the only folder to look for NVRTC in, the compiler of GPU kernels; default: where "   \
            "the system keeps it"                                                                  \
    }

#define PULL                                                                                       \
    {                                                                                              \
        .name = "pull", .kind = CLI_FLAG,                                                          \
        .help = "fetch the model when it is not here, without asking"                              \
    }

static const struct cli_option model_options[] = {
    PULL,
    { .name = "device",
      .kind = CLI_CHOICE,
      .argument = "DEVICE",
      .choices = "auto cpu gpu",
      .accepts = is_gpu_list,
      .accepted = "gpu:N gpu:N,M gpu:all",
      .others = "gpu cuda cpu",
      .help = "auto (a GPU that can run the model, else the CPU), cpu, gpu (the first usable), "
              "gpu:N, or several that share the model: gpu:N,M or gpu:all; default auto" },
    { .name = "gpu-option",
      .kind = CLI_TEXT,
      .argument = "KEY=VALUE",
      .repeats = true,
      .help = "change one setting of the GPU's plan or launches, for experiments; reel help "
              "gpu-options lists them" },
    NVRTC_DIR,
    { .name = "cpu-path",
      .kind = CLI_CHOICE,
      .argument = "NAME",
      .choices = "auto reference reference-bf16 portable avx2 avx512 amx neon",
      .help = "CPU instructions to use: auto, reference, portable, avx2, avx512, amx, neon; reel "
              "devices lists those of this machine; default auto" },
    { .name = "rounding",
      .kind = CLI_CHOICE,
      .argument = "MODE",
      .choices = "fast faithful exact",
      .help =
          "fast; or, slowly, faithful (where the bf16 reference of Hugging Face rounds) or exact "
          "(never); default fast" },
    { .name = "weights",
      .kind = CLI_CHOICE,
      .argument = "FORM",
      .choices = "bf16 int8 int4 fp8",
      .others = "quantization quantize",
      .help = "quantise the model while it is loaded: int8 (a scale a row), int4 (a scale for 128 "
              "weights; the embedding and the output matrix int8) or fp8 (a scale a row); what the "
              "file has in as few bits stays; bf16 makes every matrix bf16; default: as the file "
              "has them" },
    { .name = "kv",
      .kind = CLI_CHOICE,
      .argument = "FORM",
      .choices = "bf16 int8 fp8",
      .others = "kv-cache-dtype cache-type-k cache-type-v",
      .help = "keep keys and values of past positions in this form: int8 or fp8 take about half of "
              "the memory, with a scale for each position and KV head; default bf16" },
    { .name = "threads",
      .letter = 't',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 256,
      .others = "n-threads num-threads",
      .help = "CPU threads; 0, the default, is one per core" },
    { .name = "prompt-slice",
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = 1 << 20,
      .help = "positions of a prompt that are read at once while other sessions wait, cut at "
              "multiples of N; 0, the default, is as many as are read fastest" },
    { .name = "chat-template",
      .kind = CLI_CHOICE,
      .argument = "FILE|TEXT|NAME",
      .choices = "chatml gemma llama3 mistral phi3 qwen3 qwen3.5 smollm2 zephyr",
      .accepts = is_template,
      .accepted = "a file or the text of a template",
      .help = "take this Jinja template instead of the model's: a file, a text, or a built-in one: "
              "chatml, gemma, llama3, mistral, phi3, qwen3, qwen3.5, smollm2 or zephyr" },
    { .name = "no-cache",
      .kind = CLI_FLAG,
      .help = "neither read nor write the cache of parsed tokenizers and kernels" },
    { .name = "verbose",
      .kind = CLI_FLAG,
      .help = "say what was chosen when the model was opened: device, kernels, tuned settings" },
};
const struct cli_group cli_model_group = CLI_GROUP("Model", model_options);

static const struct cli_option pull_options[] = { PULL };
const struct cli_group cli_pull_group = CLI_GROUP("Model", pull_options);

static const struct cli_option compiler_options[] = { NVRTC_DIR };
const struct cli_group cli_compiler_group = CLI_GROUP("GPU", compiler_options);

static const struct cli_option context_options[] = {
    { .name = "ctx",
      .letter = 'c',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT_MAX,
      .others = "context ctx-size n-ctx num-ctx max-context max-model-len",
      .help = "positions to hold; 0, the default, is what the model was made for, or less where "
              "memory is short" },
};
const struct cli_group cli_context_group = CLI_GROUP("Context", context_options);

static const struct cli_option sampling_options[] = {
    { .name = "temp",
      .kind = CLI_REAL,
      .argument = "T",
      .high = 100,
      .others = "temperature",
      .help = "temperature; 0 is greedy; default: what the model's makers recommend" },
    { .name = "top-k",
      .kind = CLI_INTEGER,
      .argument = "K",
      .most = 1 << 20,
      .help = "draw from the K likeliest tokens only; 0 is off" },
    { .name = "top-p",
      .kind = CLI_REAL,
      .argument = "P",
      .high = 1,
      .help = "draw from the likeliest tokens that together have probability P; 0 and 1 are off" },
    { .name = "min-p",
      .kind = CLI_REAL,
      .argument = "P",
      .high = 1,
      .help = "drop tokens less likely than P times the likeliest; 0 is off" },
    { .name = "repeat-penalty",
      .kind = CLI_REAL,
      .argument = "R",
      .high = 100,
      .others = "repetition-penalty",
      .help = "divide the logits of tokens seen so far by R; 0 and 1 are off" },
    { .name = "presence-penalty",
      .kind = CLI_REAL,
      .argument = "R",
      .low = -100,
      .high = 100,
      .help = "subtract R once from tokens already generated; 0 is off" },
    { .name = "frequency-penalty",
      .kind = CLI_REAL,
      .argument = "R",
      .low = -100,
      .high = 100,
      .help = "subtract R for each time a token was generated; 0 is off" },
    { .name = "seed",
      .letter = 's',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT64_MAX,
      .help = "of the random numbers; the same seed gives the same text; default: another one each "
              "time, shown at the end" },
};
const struct cli_group cli_sampling_group = CLI_GROUP("Sampling", sampling_options);

static const struct cli_option speculation_options[] = {
    { .name = "speculate",
      .kind = CLI_CHOICE,
      .argument = "KIND",
      .choices = "off auto ngram mtp draft eagle3",
      .others = "speculative spec-type",
      .help =
          "check several guesses of what comes next in one pass; the text stays the same: off, "
          "ngram (what followed the last tokens where they stood before), mtp (what the "
          "model's own draft layer tells), draft (what the model of --draft tells), eagle3 (what "
          "the head of --draft-head tells), or auto: ngram, eagle3, on a CPU mtp, or "
          "draft where that is faster" },
    { .name = "draft",
      .kind = CLI_TEXT,
      .argument = "MODEL",
      .others = "model-draft draft-model md speculative-model",
      .help = "a smaller model with the same vocabulary that guesses for this one, opened with the "
              "same options" },
    { .name = "draft-head",
      .kind = CLI_TEXT,
      .argument = "FOLDER",
      .others = "eagle3 draft-head-model",
      .help = "an EAGLE-3 head that was trained for this model, which guesses for it" },
    { .name = "draft-max",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = REEL_MAX_DRAFTS,
      .others = "draft-n most-drafts num-speculative-tokens",
      .help = "guesses that a pass checks at most, 1 to 7; default: as many as it takes, of mtp 3, "
              "of draft as many as are fastest" },
};
const struct cli_group cli_speculation_group = CLI_GROUP("Speculation", speculation_options);

const char *const cli_environment[][2] = {
    { "XDG_CACHE_HOME", "folder of caches; default ~/.cache" },
    { "XDG_STATE_HOME", "folder of the chat history; default ~/.local/state" },
    { "HF_HUB_CACHE", "the Hugging Face cache; default $HF_HOME/hub" },
    { "HF_HOME", "default ~/.cache/huggingface" },
    { "HF_TOKEN_PATH", "file of the access token; default $HF_HOME/token" },
    { "HF_ENDPOINT", "address that reel pull fetches from; default https://huggingface.co" },
    { "HF_TOKEN", "access token for reel pull, before that file; sent to that address only" },
    { "NO_COLOR",
      "when set and not empty, nothing is dimmed or bold, and Markdown keeps its marks" },
    { NULL, NULL },
};

const char *const cli_files[][2] = {
    { "$XDG_CACHE_HOME/reel/models/OWNER/NAME", "models that reel pull fetched" },
    { "$HF_HUB_CACHE/models--OWNER--NAME", "models that other programs fetched; only read" },
    { "$XDG_CACHE_HOME/reel", "parsed tokenizers and compiled kernels; may be deleted" },
    { "$XDG_STATE_HOME/reel/history", "lines typed in reel chat; readable by the user only" },
    { NULL, NULL },
};
