/* Any bytes as a speech model's answer: what is read must be UTF-8 without white space around it,
 * and cues made of it must be what players take for one cue each. The first byte chooses whether a
 * language was given. */
#include "asr/answer.h"
#include "asr/subtitles.h"
#include "model/tokenizer_utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void check_text(const char *text) {
    size_t n = strlen(text);
    if (utf8_valid_prefix(text, n) != n) abort();
    if (n && (is_space(text[0]) || is_space(text[n - 1]))) abort();
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = strstr(text, part); p; p = strstr(p + strlen(part), part))
        n++;
    return n;
}

static void check_cues(enum subtitle_format format, const struct asr_answer *a) {
    const struct subtitles_whole whole = { a->text, a->language, 3 };
    struct subtitles s;
    char *out = NULL;
    if (subtitles_start(&s, format, NULL) != REEL_OK) abort();
    for (int i = 0; i < 3; i++)
        if (subtitles_add(&s, &(struct subtitle){ i, i + 1, a->text }, NULL) != REEL_OK) abort();
    if (subtitles_finish(&s, &whole, &out, NULL, NULL) != REEL_OK) abort();
    int n_cues = *a->text ? 3 : 0;
    if (format >= SUBTITLES_SRT) {
        if (count(out, "-->") != n_cues) abort();
        if (count(out, "\n\n") != n_cues + (format == SUBTITLES_VTT)) abort();
        if (strstr(out, "\n\n\n")) abort();
    }
    if (format == SUBTITLES_VTT && strchr(out, '<')) abort();
    subtitles_release(&s);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct asr_answer a;
    if (n == 0) return 0;
    const char *language = data[0] & 1 ? "English" : NULL;
    if (asr_answer_read(&a, (const char *)data + 1, n - 1, language, NULL) != REEL_OK) abort();
    check_text(a.text);
    check_text(a.language);
    for (int i = 0; i < SUBTITLES_FORMATS; i++)
        check_cues((enum subtitle_format)i, &a);
    asr_answer_release(&a);
    return 0;
}
