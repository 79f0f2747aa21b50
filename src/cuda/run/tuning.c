#include "cuda/run/tuning.h"

#include "kernels/args.h"
#include "plan/gpu_memory_plan.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_INT, KIND_UNSIGNED, KIND_BOOL };

struct setting {
    const char *key;
    size_t offset;
    enum kind kind;
    long long least, most;
};

#define AT(member) offsetof(struct cuda_tuning, member)
#define PLAN(member)                                                                               \
    { #member, AT(plan.member), KIND_INT, 0, 1 << 20 }

static const struct setting settings[] = {
    PLAN(compute),
    PLAN(n_groups),
    PLAN(group_sms),
    PLAN(warps),
    PLAN(epilogue_warps),
    PLAN(ring_slots),
    PLAN(kv_slots),
    PLAN(cap_layers),
    PLAN(cap_head),
    PLAN(cap_kv),
    PLAN(split_from),
    PLAN(prefill_tokens),
    { "epoch", AT(first_epoch), KIND_UNSIGNED, 1, 0xffffffffLL },
    { "patience", AT(patience), KIND_UNSIGNED, 1, 0x7fffffffLL },
    { "lead", AT(lead), KIND_INT, 1, MAILBOX_IDS - 1 },
    { "launch_ms", AT(launch_ms), KIND_INT, 1, 10000 },
    { "launch_tokens", AT(launch_tokens), KIND_INT, 0, 1 << 20 },
    { "hang_ms", AT(hang_ms), KIND_INT, 1, 1 << 30 },
    { "spin_us", AT(spin_us), KIND_INT, 0, 1 << 30 },
    { "prefill_from", AT(prefill_from), KIND_INT, 0, 1 << 20 },
    { "short_from", AT(short_from), KIND_INT, 1, 1 << 20 },
    { "short_positions", AT(short_positions), KIND_INT, 0, 1 << 20 },
    { "poison", AT(poison), KIND_BOOL, 0, 1 },
    { "tuned", AT(tuned), KIND_BOOL, 0, 1 },
    { "profile", AT(profile), KIND_INT, 0, 256 },
    { "absent", AT(absent), KIND_INT, -1, 1 << 20 },
    { "load_threads", AT(load_threads), KIND_INT, 0, 256 },
    { "stage_kb", AT(stage_kb), KIND_INT, 64, 1 << 20 },
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
        .prefill_from = 5,
        .short_from = 2,
        .short_positions = 384,
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
