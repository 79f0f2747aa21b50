/* Collecting what the files say, with the checks that need no other entry. */
#include "model/tokenizer_parts.h"

#include "base/memory.h"
#include "model/tokenizer_utf8.h"

#define PARTS_MAX_TEXT (1u << 30)

void parts_release(struct tokenizer_parts *parts) {
    buffer_release(&parts->text);
    buffer_release(&parts->plan);
    mem_free(parts->tokens);
    mem_free(parts->merges);
    *parts = (struct tokenizer_parts){ 0 };
}

/* The byte a character of the alphabet stands for, or -1. Printable Latin-1 stands for itself; the
 * other 68 bytes follow in order from U+0100. */
static int alphabet_byte(uint32_t c) {
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff))
        return (int)c;
    if (c < 0x100 || c >= 0x100 + 68) return -1;
    int k = (int)c - 0x100;
    if (k < 0x21) return k;                    /* 00..20 */
    if (k < 0x21 + 34) return k - 0x21 + 0x7f; /* 7f..a0 */
    return 0xad;
}

/* SentencePiece writes a space as U+2581. Text with a space that is written as itself is never
 * met. */
static enum reel_status append_unescaped(struct tokenizer_parts *parts, const char *text, size_t n,
                                         bool *known, struct reel_error *err) {
    enum reel_status status = buffer_append(&parts->text, "", 0, err);
    *known = utf8_valid_prefix(text, n) == n && !memchr(text, ' ', n);
    for (size_t i = 0, length; status == REEL_OK && *known && i < n; i += length) {
        bool space = n - i >= 3 && memcmp(text + i, SPM_SPACE, 3) == 0;
        length = space ? 3 : (size_t)utf8_length((unsigned char)text[i]);
        status = buffer_append(&parts->text, space ? " " : text + i, space ? 1 : length, err);
    }
    return status;
}

/* Appends the bytes that text stands for; *known is false, and nothing is appended, when a
 * character is outside the alphabet. */
static enum reel_status append_decoded(struct tokenizer_parts *parts, const char *text, size_t n,
                                       bool *known, struct reel_error *err) {
    if (parts->kind == KIND_SENTENCEPIECE) return append_unescaped(parts, text, n, known, err);
    const unsigned char *p = (const unsigned char *)text;
    size_t start = parts->text.size;
    *known = utf8_valid_prefix(text, n) == n;
    enum reel_status status = buffer_append(&parts->text, "", 0, err);
    for (size_t i = 0; status == REEL_OK && *known && i < n;) {
        int length, byte = alphabet_byte(utf8_decode(p + i, &length));
        i += (size_t)length;
        *known = byte >= 0;
        char c = (char)byte;
        if (*known) status = buffer_append(&parts->text, &c, 1, err);
    }
    if (!*known) parts->text.size = start;
    return status;
}

enum reel_status parts_grow(void *array, size_t needed, size_t *capacity, size_t size,
                            struct reel_error *err) {
    void *old;
    if (needed <= *capacity) return REEL_OK;
    size_t wanted = *capacity * 2 > needed ? *capacity * 2 : needed;
    if (wanted < 1024) wanted = 1024;
    memcpy(&old, array, sizeof old);
    void *p = mem_resize(old, wanted * size);
    if (!p) return err_memory(err, "a vocabulary", wanted * size);
    memcpy(array, &p, sizeof p);
    *capacity = wanted;
    return REEL_OK;
}

/* The entry of an id, made when it is new. */
static enum reel_status entry(struct tokenizer_parts *parts, int64_t id, struct token_part **out,
                              struct reel_error *err) {
    if (id < 0 || id >= TOKENIZER_MAX_TOKENS)
        return err_set(err, REEL_E_LIMIT, "%s: token id %lld, allowed are 0 to %d", parts->name,
                       (long long)id, TOKENIZER_MAX_TOKENS - 1);
    size_t needed = (size_t)id + 1;
    enum reel_status status =
        parts_grow(&parts->tokens, needed, &parts->token_capacity, sizeof *parts->tokens, err);
    if (status != REEL_OK) return status;
    if (needed > parts->n_tokens) {
        memset(parts->tokens + parts->n_tokens, 0,
               (needed - parts->n_tokens) * sizeof *parts->tokens);
        parts->n_tokens = needed;
    }
    *out = &parts->tokens[id];
    return REEL_OK;
}

static enum reel_status repeated(const struct tokenizer_parts *parts, int64_t id, const char *text,
                                 size_t n, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT,
                   "%s: token id %lld is given twice, the second time to \"%.*s\"", parts->name,
                   (long long)id, (int)(n < 40 ? n : 40), text);
}

/* Takes what was appended to the text since `at`, within the limit that offsets have. */
static enum reel_status take(struct tokenizer_parts *parts, size_t at, uint32_t *out_at,
                             uint32_t *out_n, struct reel_error *err) {
    if (parts->text.size > PARTS_MAX_TEXT)
        return err_set(err, REEL_E_LIMIT, "%s: more than %u bytes of tokens and merges",
                       parts->name, PARTS_MAX_TEXT);
    *out_at = (uint32_t)at;
    *out_n = (uint32_t)(parts->text.size - at);
    return REEL_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that a piece "<0x0A>" of SentencePiece stands for, or -1. */
static int piece_byte(const struct tokenizer_parts *parts, const char *text, size_t n) {
    if (parts->kind != KIND_SENTENCEPIECE || n != 6) return -1;
    if (memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static enum reel_status add_byte(struct tokenizer_parts *parts, struct token_part *token, int byte,
                                 struct reel_error *err) {
    const char c = (char)byte;
    size_t at = parts->text.size;
    enum reel_status status = buffer_append(&parts->text, &c, 1, err);
    if (status != REEL_OK) return status;
    token->flags = TOKEN_PRESENT | TOKEN_RAW | TOKEN_BYTE;
    return take(parts, at, &token->at, &token->n, err);
}

enum reel_status parts_add_word(struct tokenizer_parts *parts, int64_t id, const char *text,
                                size_t n, struct reel_error *err) {
    struct token_part *token;
    enum reel_status status = entry(parts, id, &token, err);
    if (status != REEL_OK) return status;
    if (token->flags) return repeated(parts, id, text, n, err);
    if (n == 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: token id %lld has an empty text: at least one character is needed",
                       parts->name, (long long)id);
    int byte = piece_byte(parts, text, n);
    if (byte >= 0) return add_byte(parts, token, byte, err);
    bool known;
    size_t at = parts->text.size;
    status = append_decoded(parts, text, n, &known, err);
    if (status == REEL_OK && !known) status = buffer_append(&parts->text, text, n, err);
    if (status != REEL_OK) return status;
    token->flags = known ? TOKEN_PRESENT : TOKEN_PRESENT | TOKEN_RAW;
    return take(parts, at, &token->at, &token->n, err);
}

/* Whether text, as it stands or decoded, is what the token is already known to be. */
static enum reel_status same_text(struct tokenizer_parts *parts, const struct token_part *token,
                                  const char *text, size_t n, bool *same, struct reel_error *err) {
    size_t start = parts->text.size;
    bool known;
    *same = token->n == n && memcmp(parts->text.bytes + token->at, text, n) == 0;
    if (*same) return REEL_OK;
    enum reel_status status = append_decoded(parts, text, n, &known, err);
    *same = status == REEL_OK && known && parts->text.size - start == token->n &&
            memcmp(parts->text.bytes + token->at, parts->text.bytes + start, token->n) == 0;
    parts->text.size = start;
    return status;
}

/* Each place of a text is compared with an added token up to where they differ. */
enum { MAX_ADDED = 1024 };

enum reel_status parts_add_token(struct tokenizer_parts *parts, int64_t id, const char *text,
                                 size_t n, bool control, struct reel_error *err) {
    struct token_part *token;
    enum reel_status status = entry(parts, id, &token, err);
    if (status != REEL_OK) return status;
    if (n == 0 || utf8_valid_prefix(text, n) != n)
        return err_set(err, REEL_E_FORMAT, "%s: added token %lld has %s", parts->name,
                       (long long)id, n ? "a text that is not UTF-8" : "an empty text");
    if (n > MAX_ADDED)
        return err_set(err, REEL_E_LIMIT, "%s: added token %lld has %zu bytes; at most %d are read",
                       parts->name, (long long)id, n, MAX_ADDED);
    if (token->flags) {
        bool same;
        status = same_text(parts, token, text, n, &same, err);
        if (status != REEL_OK) return status;
        if (!same) return repeated(parts, id, text, n, err);
        if (token->flags & TOKEN_ADDED) return REEL_OK; /* the first file to list it decides */
    }
    size_t at = parts->text.size;
    status = buffer_append(&parts->text, text, n, err);
    if (status != REEL_OK) return status;
    bool word = token->flags & TOKEN_PRESENT && !(token->flags & TOKEN_RAW) && token->n == n &&
                memcmp(parts->text.bytes + token->at, text, n) == 0; /* merges may give it, too */
    token->flags = TOKEN_PRESENT | TOKEN_ADDED | (control ? TOKEN_CONTROL : 0u);
    if (!word) token->flags |= TOKEN_RAW;
    return take(parts, at, &token->at, &token->n, err);
}

enum reel_status parts_add_reserved(struct tokenizer_parts *parts, int64_t id,
                                    struct reel_error *err) {
    struct token_part *token;
    enum reel_status status = entry(parts, id, &token, err);
    if (status == REEL_OK) token->flags = TOKEN_RESERVED;
    return status;
}

enum reel_status parts_add_merge(struct tokenizer_parts *parts, const char *left, size_t left_n,
                                 const char *right, size_t right_n, struct reel_error *err) {
    if (parts->n_merges >= TOKENIZER_MAX_TOKENS)
        return err_set(err, REEL_E_LIMIT, "%s: more than %d merges", parts->name,
                       TOKENIZER_MAX_TOKENS);
    enum reel_status status = parts_grow(&parts->merges, parts->n_merges + 1,
                                         &parts->merge_capacity, sizeof *parts->merges, err);
    if (status != REEL_OK) return status;
    struct merge_part *merge = &parts->merges[parts->n_merges];
    size_t at = parts->text.size;
    bool known = true, right_known = true;
    status = append_decoded(parts, left, left_n, &known, err);
    size_t middle = parts->text.size;
    if (status == REEL_OK) status = append_decoded(parts, right, right_n, &right_known, err);
    if (status != REEL_OK) return status;
    if (!known || !right_known || middle == at || middle == parts->text.size)
        return err_set(err, REEL_E_FORMAT, "%s: merge %zu: \"%.*s\" is not a token", parts->name,
                       parts->n_merges,
                       (int)(known ? (right_n < 40 ? right_n : 40) : (left_n < 40 ? left_n : 40)),
                       known && middle != at ? right : left);
    status = take(parts, middle, &merge->at, &merge->right_n, err);
    merge->at = (uint32_t)at;
    merge->left_n = (uint32_t)(middle - at);
    merge->rank = merge->order = (uint32_t)parts->n_ranks++;
    parts->n_merges++;
    return status;
}

enum reel_status parts_add_merge_line(struct tokenizer_parts *parts, const char *line, size_t n,
                                      struct reel_error *err) {
    const char *space = memchr(line, ' ', n);
    size_t left_n = space ? (size_t)(space - line) : n;
    if (!space || memchr(space + 1, ' ', n - left_n - 1))
        return err_set(err, REEL_E_FORMAT,
                       "%s: merge %zu: \"%.*s\" must be two tokens with one space between",
                       parts->name, parts->n_merges, (int)(n < 80 ? n : 80), line);
    return parts_add_merge(parts, line, left_n, space + 1, n - left_n - 1, err);
}

enum reel_status parts_add_around(struct tokenizer_parts *parts, int64_t id, bool after,
                                  struct reel_error *err) {
    struct around_text *a = &parts->around;
    uint32_t *n = after ? &a->n_after : &a->n_before;
    if (id < 0 || id >= TOKENIZER_MAX_TOKENS)
        return err_set(err, REEL_E_LIMIT, "%s: token id %lld around a text, allowed are 0 to %d",
                       parts->name, (long long)id, TOKENIZER_MAX_TOKENS - 1);
    if (*n == TOKENIZER_MAX_AROUND)
        return err_set(err, REEL_E_LIMIT, "%s: more than %d tokens %s a text", parts->name,
                       TOKENIZER_MAX_AROUND, after ? "after" : "before");
    if (!after) memmove(a->before + 1, a->before, *n * sizeof *a->before);
    *(after ? a->after + *n : a->before) = (int32_t)id;
    ++*n;
    return REEL_OK;
}
