/* The names that GGUF files have for pre-tokenizers (llama.cpp, src/llama-vocab.cpp), and what the
 * tokenizer.json of the models that they are named after says. */
#include "base/buffer.h"
#include "model/tokenizer_parts.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const char llama3[] = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES_SPACES;
static const char o200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER
    "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES_SPACES;
static const char tekken[] =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES_SPACES;
static const char seed_coder[] = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES_SPACES;
static const char bailing[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char cjk[] = "[一-龥぀-ゟ゠-ヿ]+";
static const char deepseek3[] = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                                "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                                "| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES_SPACES;
static const char deepseek_cjk[] = "[一-龥ࠀ-一가-\xed\x9f\xbf]+";
/* The layout is by hand: clang-format measures these letters anew each time. */
/* clang-format off */
/* Escaped: some of these characters an editor may replace by others that look the same. */
static const char deepseek_letters[] =
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
    "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+";
static const char deepseek_signs[] = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";

/* A chain of at most seven stages; ByteLevel without its expression comes last by itself. */
struct step {
    enum split_what what;
    enum split_behaviour behaviour;
    const char *regex;
};
struct named {
    const char *names; /* separated by spaces */
    bool nfc, ignore_merges, starts;
    struct step steps[7];
};

#define REGEX(text)                                                                                \
    { SPLIT_REGEX, SPLIT_ISOLATED, text }
#define GPT2 REGEX(split_regex_gpt2)
#define DIGIT                                                                                      \
    { SPLIT_NUMERIC, SPLIT_ISOLATED, "" }

static const struct named known[] = {
    { "qwen2", true, false, false, { REGEX(split_regex_qwen2) } },
    { "qwen35", true, false, false, { REGEX(split_regex_qwen35) } },
    { "llama-bpe llama3 llama-v3 falcon3", false, true, true, { REGEX(llama3) } },
    { "dbrx smaug-bpe chatglm-bpe glm4", false, false, false, { REGEX(llama3) } },
    { "gpt-4o llama4", false, false, false, { REGEX(o200k) } },
    { "tekken", false, true, true, { REGEX(tekken) } },
    { "gpt-2 phi-2 mpt jais exaone4", false, false, false, { GPT2 } },
    { "olmo", true, false, false, { GPT2 } },
    { "smollm starcoder refact codeshell exaone minerva-7b", false, false, false, { DIGIT, GPT2 } },
    { "command-r", true, false, false, { DIGIT, GPT2 } },
    { "deepseek-llm",
      false,
      false,
      false,
      { REGEX("[\r\n]"), REGEX(deepseek_letters), REGEX(deepseek_signs), REGEX("\\s+$"),
        REGEX(deepseek_cjk), DIGIT } },
    { "deepseek-coder",
      false,
      false,
      false,
      { REGEX("[\r\n]"), REGEX("\\s?\\p{L}+"), REGEX("\\s?\\p{P}+"), REGEX(deepseek_cjk), DIGIT } },
    { "deepseek-v3 hunyuan-dense",
      false,
      false,
      false,
      { REGEX("\\p{N}{1,3}"), REGEX(cjk), REGEX(deepseek3) } },
    { "falcon",
      false,
      false,
      false,
      { { SPLIT_PUNCTUATION, SPLIT_CONTIGUOUS, "" },
        GPT2,
        { SPLIT_BYTES, SPLIT_ISOLATED, "" },
        { SPLIT_NUMERIC, SPLIT_CONTIGUOUS, "" },
        REGEX("[0-9][0-9][0-9]") } },
    { "seed-coder", false, false, false, { REGEX(seed_coder) } },
    { "bailingmoe bailingmoe2 llada-moe", false, false, false, { REGEX(bailing) } },
};
#define N_KNOWN (sizeof known / sizeof known[0])

static bool among(const char *names, const char *name, size_t n) {
    while (*names) {
        size_t length = strcspn(names, " ");
        if (length == n && memcmp(names, name, n) == 0) return true;
        names += length;
        names += strspn(names, " ");
    }
    return false;
}

static enum reel_status add_steps(struct tokenizer_parts *parts, const struct named *named,
                                  struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool bytes = false;
    for (const struct step *step = named->steps; status == REEL_OK && step->regex; step++) {
        bytes |= step->what == SPLIT_BYTES;
        status = split_add(&parts->plan, step->what, step->behaviour, false, step->regex, err);
    }
    if (status == REEL_OK && !bytes)
        status = split_add(&parts->plan, SPLIT_BYTES, SPLIT_ISOLATED, false, "", err);
    return status;
}

enum reel_status parts_set_named(struct tokenizer_parts *parts, const char *name, size_t n,
                                 bool *starts, struct reel_error *err) {
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (!among(known[i].names, name, n)) continue;
        parts->nfc = known[i].nfc;
        parts->ignore_merges = known[i].ignore_merges;
        *starts = known[i].starts;
        return add_steps(parts, &known[i], err);
    }
    struct buffer list = { 0 };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < N_KNOWN; i++)
        status = buffer_printf(&list, err, "%s%s", i ? " " : "", known[i].names);
    if (status == REEL_OK)
        status =
            err_set(err, REEL_E_UNSUPPORTED, "%s: tokenizer.ggml.pre is \"%.*s\"; supported are %s",
                    parts->name, (int)(n < 40 ? n : 40), name, list.bytes);
    buffer_release(&list);
    return status;
}
