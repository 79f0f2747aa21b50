#include "model/tokenizer_spm_text.h"

#include "model/tokenizer_utf8.h"

/* The next U+2581, or NULL. */
static const char *find_escaped(const char *text, size_t n) {
    const char *end = text + n, *p = text;
    while (end - p >= 3 && (p = memchr(p, SPM_SPACE[0], (size_t)(end - p) - 2))) {
        if (memcmp(p, SPM_SPACE, 3) == 0) return p;
        p++;
    }
    return NULL;
}

static bool wants_space(const struct reel_tokenizer *tok, bool first, const char *text, size_t n) {
    if (tok->head.prefix == PREFIX_NONE || n == 0) return false;
    if (tok->head.prefix == PREFIX_FIRST && !first) return false;
    if (!tok->head.prefix_new) return true;
    return text[0] != ' ' && !(n >= 3 && memcmp(text, SPM_SPACE, 3) == 0);
}

enum reel_status spm_text(const struct reel_tokenizer *tok, bool first, struct buffer *scratch,
                          const char **text, size_t *n, struct reel_error *err) {
    bool space = wants_space(tok, first, *text, *n);
    const char *p = *text, *end = p + *n, *escaped = find_escaped(p, *n);
    if (!space && !escaped) return REEL_OK;
    scratch->size = 0;
    enum reel_status status = buffer_append(scratch, " ", space ? 1 : 0, err);
    while (status == REEL_OK && escaped) {
        status = buffer_append(scratch, p, (size_t)(escaped - p), err);
        if (status == REEL_OK) status = buffer_append(scratch, " ", 1, err);
        p = escaped + 3;
        escaped = find_escaped(p, (size_t)(end - p));
    }
    if (status == REEL_OK) status = buffer_append(scratch, p, (size_t)(end - p), err);
    *text = scratch->bytes;
    *n = scratch->size;
    return status;
}

size_t spm_word(enum cut_rule cut, const char *text, size_t n) {
    size_t i = cut == CUT_SPACES ? 1 : 0;
    if (cut == CUT_NOWHERE) return n;
    while (i < n && text[i] == ' ' && cut == CUT_WORDS)
        i++;
    const char *space = i < n ? memchr(text + i, ' ', n - i) : NULL;
    return space ? (size_t)(space - text) : n;
}
