/* The tokenizer in a GGUF file's metadata: tokenizer.ggml.model is "gpt2" for byte-level BPE and
 * "llama" for SentencePiece's. The second has scores instead of merges, and every text between two
 * control tokens gets a space in front unless add_space_prefix is false, as in llama.cpp. */
#include "base/memory.h"
#include "model/tokenizer_parts.h"

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static bool text_is(const char *bytes, size_t n, const char *wanted) {
    return n == strlen(wanted) && memcmp(bytes, wanted, n) == 0;
}

/* Finds what a file's name for its pre-tokenizer means. */
static enum reel_status read_pattern(struct tokenizer_parts *parts, const struct gguf *gguf,
                                     bool *starts, struct reel_error *err) {
    const char *bytes = "";
    size_t n = 0;
    enum reel_status status = gguf_get_text(gguf, "tokenizer.ggml.pre", true, &bytes, &n, err);
    return status == REEL_OK ? parts_set_named(parts, bytes, n, starts, err) : status;
}

static enum reel_status refuse_flag(const struct tokenizer_parts *parts, const struct gguf *gguf,
                                    const char *key, struct reel_error *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_BOOL || value->n_bytes < 1 || value->bytes[0] == 0)
        return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: %s is true, which is not supported", parts->name,
                   key);
}

/* The begin-of-text (or end) token that the file wants before (after) every text. SentencePiece's
 * files want the first, and it is id 1, unless they say otherwise; of the others the name of the
 * pre-tokenizer says so, which gives `fallback`. */
static enum reel_status read_around(struct tokenizer_parts *parts, const struct gguf *gguf,
                                    bool after, bool fallback, struct reel_error *err) {
    const char *flag = after ? "tokenizer.ggml.add_eos_token" : "tokenizer.ggml.add_bos_token";
    const char *key = after ? "tokenizer.ggml.eos_token_id" : "tokenizer.ggml.bos_token_id";
    bool spm = parts->kind == KIND_SENTENCEPIECE, wanted = fallback;
    int64_t id = after ? 2 : 1;
    enum reel_status status = gguf_get_bool(gguf, flag, false, &wanted, err);
    if (status != REEL_OK || !wanted) return status;
    if (fallback && !spm && !gguf_find(gguf, key)) return REEL_OK;
    status = gguf_get_int(gguf, key, 0, TOKENIZER_MAX_TOKENS - 1, !spm, &id, err);
    return status == REEL_OK ? parts_add_around(parts, id, after, err) : status;
}

static enum reel_status find_array(const struct tokenizer_parts *parts, const struct gguf *gguf,
                                   const char *key, enum gguf_type type,
                                   const struct gguf_value **out, struct reel_error *err) {
    *out = gguf_find(gguf, key);
    if (*out && (*out)->type == GGUF_ARRAY && (*out)->element_type == type) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: %s must be a list of %s", parts->name, key,
                   type == GGUF_STRING ? "texts"
                   : type == GGUF_F32  ? "32-bit floats"
                                       : "32-bit integers");
}

static enum reel_status add_token(struct tokenizer_parts *parts, int64_t id, int32_t type,
                                  const char *text, size_t n, struct reel_error *err) {
    switch (type) {
    case TYPE_BYTE:
        if (parts->kind == KIND_SENTENCEPIECE) return parts_add_word(parts, id, text, n, err);
        break;
    case TYPE_NORMAL:
        return parts_add_word(parts, id, text, n, err);
    case TYPE_UNKNOWN:
    case TYPE_CONTROL:
        return parts_add_token(parts, id, text, n, true, err);
    case TYPE_USER_DEFINED:
        return parts_add_token(parts, id, text, n, false, err);
    case TYPE_UNUSED:
        return parts_add_reserved(parts, id, err);
    default:
        break;
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: token %lld has type %d; byte-level BPE has 1 to 5, SentencePiece 1 to 6",
                   parts->name, (long long)id, (int)type);
}

static enum reel_status read_tokens(struct tokenizer_parts *parts, const struct gguf *gguf,
                                    struct reel_error *err) {
    const struct gguf_value *texts, *types;
    enum reel_status status =
        find_array(parts, gguf, "tokenizer.ggml.tokens", GGUF_STRING, &texts, err);
    if (status == REEL_OK)
        status = find_array(parts, gguf, "tokenizer.ggml.token_type", GGUF_I32, &types, err);
    if (status != REEL_OK) return status;
    if (texts->count > TOKENIZER_MAX_TOKENS || types->count != texts->count)
        return err_set(err, REEL_E_FORMAT,
                       "%s: %llu tokens with %llu types; both must agree and be at most %d",
                       parts->name, (unsigned long long)texts->count,
                       (unsigned long long)types->count, TOKENIZER_MAX_TOKENS);
    const unsigned char *cursor = texts->bytes;
    for (size_t id = 0; status == REEL_OK && id < texts->count; id++) {
        const char *text;
        size_t n;
        int32_t type;
        if (!gguf_next_text(texts, &cursor, &text, &n))
            return err_set(err, REEL_E_FORMAT, "%s: token %zu runs past its list", parts->name, id);
        memcpy(&type, types->bytes + 4 * id, sizeof type);
        status = add_token(parts, (int64_t)id, type, text, n, err);
    }
    return status;
}

static enum reel_status read_merges(struct tokenizer_parts *parts, const struct gguf *gguf,
                                    struct reel_error *err) {
    const struct gguf_value *merges;
    enum reel_status status =
        find_array(parts, gguf, "tokenizer.ggml.merges", GGUF_STRING, &merges, err);
    if (status != REEL_OK) return status;
    const unsigned char *cursor = merges->bytes;
    for (uint64_t i = 0; status == REEL_OK && i < merges->count; i++) {
        const char *text;
        size_t n;
        if (!gguf_next_text(merges, &cursor, &text, &n))
            return err_set(err, REEL_E_FORMAT, "%s: merge %llu runs past its list", parts->name,
                           (unsigned long long)i);
        status = parts_add_merge_line(parts, text, n, err);
    }
    return status;
}

static enum reel_status read_scores(struct tokenizer_parts *parts, const struct gguf *gguf,
                                    struct reel_error *err) {
    const struct gguf_value *scores;
    float *list;
    enum reel_status status =
        find_array(parts, gguf, "tokenizer.ggml.scores", GGUF_F32, &scores, err);
    if (status != REEL_OK) return status;
    if (scores->count != parts->n_tokens)
        return err_set(err, REEL_E_FORMAT, "%s: %zu tokens with %llu scores", parts->name,
                       parts->n_tokens, (unsigned long long)scores->count);
    status = mem_zeroed(&list, parts->n_tokens + 1, sizeof *list, "scores", err);
    if (status != REEL_OK) return status;
    memcpy(list, scores->bytes, parts->n_tokens * sizeof *list);
    status = parts_add_scored_merges(parts, list, err);
    mem_free(list);
    return status;
}

static enum reel_status from_byte_level(struct tokenizer_parts *parts, const struct gguf *gguf,
                                        bool *starts, struct reel_error *err) {
    parts->drops_unknown = true;
    enum reel_status status = read_pattern(parts, gguf, starts, err);
    if (status == REEL_OK)
        status = refuse_flag(parts, gguf, "tokenizer.ggml.add_space_prefix", err);
    if (status == REEL_OK) status = read_tokens(parts, gguf, err);
    if (status == REEL_OK) status = read_merges(parts, gguf, err);
    return status;
}

static enum reel_status from_spm(struct tokenizer_parts *parts, const struct gguf *gguf,
                                 struct reel_error *err) {
    bool prefix = true;
    parts->kind = KIND_SENTENCEPIECE;
    enum reel_status status =
        gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", false, &prefix, err);
    if (status == REEL_OK)
        status = refuse_flag(parts, gguf, "tokenizer.ggml.remove_extra_whitespaces", err);
    if (status != REEL_OK) return status;
    parts->prefix = prefix ? PREFIX_EACH : PREFIX_NONE;
    parts->strip = prefix;
    status = read_tokens(parts, gguf, err);
    return status == REEL_OK ? read_scores(parts, gguf, err) : status;
}

enum reel_status parts_from_gguf(struct tokenizer_parts *parts, const struct gguf *gguf,
                                 struct reel_error *err) {
    const char *model = "";
    size_t n = 0;
    parts->name = gguf->path;
    enum reel_status status = gguf_get_text(gguf, "tokenizer.ggml.model", true, &model, &n, err);
    if (status != REEL_OK) return status;
    bool spm = text_is(model, n, "llama");
    if (spm || text_is(model, n, "gpt2")) {
        bool starts = spm;
        status = spm ? from_spm(parts, gguf, err) : from_byte_level(parts, gguf, &starts, err);
        if (status == REEL_OK) status = read_around(parts, gguf, false, starts, err);
        if (status == REEL_OK) status = read_around(parts, gguf, true, false, err);
        return status;
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: tokenizer.ggml.model is \"%.*s\"; supported are gpt2 (byte-level BPE) and "
                   "llama (SentencePiece BPE)",
                   parts->name, (int)(n < 40 ? n : 40), model);
}
