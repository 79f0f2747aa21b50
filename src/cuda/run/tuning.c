#include "cuda/run/tuning.h"

#include "base/struct_size.h"
#include "kernels/args.h"
#include "plan/gpu_memory_plan.h"
#include "plan/plan_layout.h"
#include "reel_measure.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_INT, KIND_UNSIGNED, KIND_BOOL };

/* The one list of GPU options: help, man page and docs/GPU_OPTIONS.md have it from here. */
struct setting {
    const char *key;
    size_t offset;
    enum kind kind;
    long long least, most;
    const char *meaning;
};

#define AT(member) offsetof(struct cuda_tuning, member)
#define PLAN(member, meaning)                                                                      \
    { #member, AT(plan.member), KIND_INT, 0, 1 << 20, meaning "; 0: the planner's choice" }

static const struct setting settings[] = {
    PLAN(compute, "compute capability to compile for, such as 80, at most the GPU's"),
    PLAN(n_groups, "groups of SMs that share the heads of attention"),
    PLAN(group_sms, "SMs in a group"),
    PLAN(warps, "warps of a block that multiply weights"),
    PLAN(epilogue_warps, "warps of a block that do what would hold the others up"),
    PLAN(ring_slots, "slots for weights in a block's shared memory"),
    PLAN(slot_tiles, "tiles of weights that a warp has in a slot: 1, 2 or 4"),
    PLAN(kv_slots, "slots for keys and values in a block's shared memory"),
    PLAN(cap_layers, "slots of a layer's weights that may be under way at once"),
    PLAN(cap_head, "slots of the output matrix that may be under way at once"),
    PLAN(cap_kv, "slots of keys and values that may be under way at once"),
    PLAN(hops, "hops in which sums of out and down reach every SM, 1 or 2"),
    PLAN(h_bits, "bits of each value of h that phases take, 24 or 32"),
    PLAN(split_from, "positions from which attention is split over the SMs of a group"),
    PLAN(kv_page, "pieces of 16 positions in a page of keys and values, a power of two"),
    PLAN(prefill_tokens, "tokens of a prompt that are read at once, a multiple of 128"),
    { "epoch", AT(first_epoch), KIND_UNSIGNED, 1, 0xffffffffLL,
      "number of the first exchange, to try what happens when the numbers run out" },
    { "patience", AT(patience), KIND_UNSIGNED, 1, 0x7fffffffLL,
      "looks at a word that has not come before a kernel gives up and says so" },
    { "lead", AT(lead), KIND_INT, 1, MAILBOX_IDS - 1,
      "tokens that a launch may be ahead of the program that takes them" },
    { "launch_ms", AT(launch_ms), KIND_INT, 1, 10000,
      "milliseconds that a launch which decodes should take" },
    { "launch_tokens", AT(launch_tokens), KIND_INT, 0, 1 << 20,
      "tokens of a launch which decodes, at most; 0: what launch_ms allows" },
    { "hang_ms", AT(hang_ms), KIND_INT, 1, 1 << 30,
      "milliseconds of silence after which a launch counts as hung" },
    { "spin_us", AT(spin_us), KIND_INT, 0, 1 << 30,
      "microseconds that the host looks for the next token without sleeping" },
    { "nap_us", AT(nap_us), KIND_INT, 1, 1000000,
      "microseconds between two looks of the host for a token that is later than that" },
    { "prefill_from", AT(prefill_from), KIND_INT, 0, 1 << 20,
      "tokens of a prompt from which the kernels for prompts read it; fewer are decoded; 0: all "
      "are decoded" },
    { "short_from", AT(short_from), KIND_INT, 1, 1 << 20,
      "tokens of a prompt from which the kernel for short prompts reads it" },
    { "short_positions", AT(short_positions), KIND_INT, 0, 1 << 20,
      "positions that may lie before 64 tokens which the kernel for short prompts reads; 0: it "
      "reads none" },
    { "short_far", AT(short_far), KIND_BOOL, 0, 1,
      "1: behind more positions a prompt as short is read in one launch, too, whose SMs share the "
      "positions; with --prompt-slice that is the default" },
    { "poison", AT(poison), KIND_BOOL, 0, 1,
      "1: new memory is filled with NaN, to find what reads it" },
    { "narrow", AT(narrow), KIND_INT, 0, 2,
      "1: weights of 8 and 4 bits stay as they are stored; 0: they become bf16; 2: they stay where "
      "they would be 512 MB or more in bf16" },
    { "tuned", AT(tuned), KIND_BOOL, 0, 1, "0: what reel tune remembered is not used" },
    { "profile", AT(profile), KIND_INT, 0, 256,
      "tokens of a launch that leave time stamps; 0: kernels without stamps" },
    { "lineinfo", AT(lineinfo), KIND_BOOL, 0, 1,
      "1: machine code names the lines that it was made of, for tools/gpu_samples.py" },
    { "absent", AT(absent), KIND_INT, -1, 1 << 20,
      "a block that leaves at once, to see what the others then say; -1: none" },
    { "load_threads", AT(load_threads), KIND_INT, 0, 256,
      "threads that bring weights to the GPU; 0: by the cores there are" },
    { "draft_int8", AT(draft_int8), KIND_BOOL, 0, 1,
      "1: a draft layer that is wider guesses with int8 weights, which are made when the first "
      "session asks for it" },
    { "columns_wait", AT(columns_wait), KIND_INT, 0, 2,
      "1: several sessions wait until their program is compiled, 2: until those for any number "
      "are; "
      "0: they take turns meanwhile" },
    { "stage_kb", AT(stage_kb), KIND_INT, 64, 1 << 20,
      "kilobytes of a buffer through which weights go to the GPU" },
    { "kv_pool_mb", AT(kv_pool_mb), KIND_INT, 0, 1 << 30,
      "megabytes that the keys and values of all sessions may take, at least one page; 0: what is "
      "free, less a reserve" },
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

void cuda_tuning_defaults(struct cuda_tuning *tuning) {
    *tuning = (struct cuda_tuning){
        .first_epoch = 1,
        .patience = 4u << 20, /* a few seconds of polls of about a microsecond */
        .lead = 128,
        .launch_ms = 250,
        .hang_ms = 15000,
        .spin_us = 2000,
        .nap_us = 50,
        .prefill_from = 5,
        .short_from = 2,
        .short_positions = 384,
        .narrow = NARROW_LARGE,
        .draft_int8 = true,
        .stage_kb = GPU_STAGE_KB,
        .tuned = true,
        .absent = -1,
    };
}

static const struct setting *find_setting(const char *key, size_t n) {
    for (int i = 0; i < N_SETTINGS; i++)
        if (strlen(settings[i].key) == n && memcmp(settings[i].key, key, n) == 0)
            return &settings[i];
    return NULL;
}

static enum reel_status refuse_unknown(const char *text, size_t n, struct reel_error *err) {
    char list[400] = "";
    for (int i = 0; i < N_SETTINGS; i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, settings[i].key, sizeof list - strlen(list) - 1);
    }
    return err_set(err, REEL_E_ARGUMENT, "GPU option \"%.*s\" is not KEY=VALUE; keys are %s",
                   (int)(n < 40 ? n : 40), text, list);
}

static long long stored(const struct cuda_tuning *tuning, const struct setting *setting) {
    const void *at = (const char *)tuning + setting->offset;
    switch (setting->kind) {
    case KIND_INT:
        return *(const int *)at;
    case KIND_UNSIGNED:
        return *(const unsigned *)at;
    case KIND_BOOL:
        return *(const bool *)at;
    }
    return 0;
}

enum reel_status cuda_tuning_option(struct reel_gpu_option *option, int index,
                                    struct reel_error *err) {
    struct cuda_tuning standard;
    if (index < 0 || index >= N_SETTINGS)
        return err_set(err, REEL_E_NOT_FOUND, "there are %d GPU options", N_SETTINGS);
    const struct setting *setting = &settings[index];
    cuda_tuning_defaults(&standard);
    *option = (struct reel_gpu_option){ .size = sizeof *option,
                                        .key = setting->key,
                                        .meaning = setting->meaning,
                                        .least = setting->least,
                                        .most = setting->most,
                                        .standard = stored(&standard, setting) };
    return REEL_OK;
}

static void store_setting(struct cuda_tuning *tuning, const struct setting *setting,
                          long long value) {
    void *at = (char *)tuning + setting->offset;
    switch (setting->kind) {
    case KIND_INT:
        *(int *)at = (int)value;
        break;
    case KIND_UNSIGNED:
        *(unsigned *)at = (unsigned)value;
        break;
    case KIND_BOOL:
        *(bool *)at = value != 0;
        break;
    }
}

/* One "key=value" of n bytes. */
static enum reel_status parse_one(struct cuda_tuning *tuning, const char *text, size_t n,
                                  struct reel_error *err) {
    const char *equals = memchr(text, '=', n);
    const struct setting *setting = equals ? find_setting(text, (size_t)(equals - text)) : NULL;
    if (!setting) return refuse_unknown(text, n, err);
    char *end = NULL;
    errno = 0;
    long long value = strtoll(equals + 1, &end, 0);
    if (errno || end == equals + 1 || end != text + n || value < setting->least ||
        value > setting->most)
        return err_set(err, REEL_E_ARGUMENT, "GPU option %.*s: allowed are %lld to %lld",
                       (int)(n < 80 ? n : 80), text, setting->least, setting->most);
    store_setting(tuning, setting, value);
    return REEL_OK;
}

enum reel_status cuda_tuning_parse(struct cuda_tuning *tuning, const char *text,
                                   struct reel_error *err) {
    enum reel_status status = REEL_OK;
    while (text && *text && status == REEL_OK) {
        size_t n = strcspn(text, ",");
        if (n > 0) status = parse_one(tuning, text, n, err);
        text += n + (text[n] == ',');
    }
    return status;
}
