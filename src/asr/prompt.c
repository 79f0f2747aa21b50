/* The text form is the one of the published chat template; the languages are those of the published
 * processor (transformers 5.23, models/qwen3_asr/processing_qwen3_asr.py). */
#include "asr/prompt.h"

#include "base/memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const languages[][2] = {
    { "zh", "Chinese" },    { "en", "English" },    { "yue", "Cantonese" }, { "ar", "Arabic" },
    { "de", "German" },     { "fr", "French" },     { "es", "Spanish" },    { "pt", "Portuguese" },
    { "id", "Indonesian" }, { "it", "Italian" },    { "ko", "Korean" },     { "ru", "Russian" },
    { "th", "Thai" },       { "vi", "Vietnamese" }, { "ja", "Japanese" },   { "tr", "Turkish" },
    { "hi", "Hindi" },      { "ms", "Malay" },      { "nl", "Dutch" },      { "sv", "Swedish" },
    { "da", "Danish" },     { "fi", "Finnish" },    { "pl", "Polish" },     { "cs", "Czech" },
    { "fil", "Filipino" },  { "fa", "Persian" },    { "el", "Greek" },      { "ro", "Romanian" },
    { "hu", "Hungarian" },  { "mk", "Macedonian" },
};
#define N_LANGUAGES ((int)(sizeof languages / sizeof *languages))

const char *asr_language_name(int index) {
    return index >= 0 && index < N_LANGUAGES ? languages[index][1] : NULL;
}

const char *asr_language_find(const char *text) {
    for (int i = 0; i < N_LANGUAGES; i++)
        if (strcasecmp(text, languages[i][0]) == 0 || strcasecmp(text, languages[i][1]) == 0)
            return languages[i][1];
    return NULL;
}

static const char *const controls[] = { "<|im_start|>", "<|im_end|>", "<|audio_start|>",
                                        "<|audio_pad|>", "<|audio_end|>" };

static enum reel_status check_controls(const struct reel_tokenizer *tok, const char *language,
                                       struct reel_error *err) {
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof controls / sizeof *controls && !missing; i++)
        if (tokenizer_find_added(tok, controls[i]) < 0) missing = controls[i];
    if (!missing && language && tokenizer_find_added(tok, "<asr_text>") < 0) missing = "<asr_text>";
    if (!missing) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "the model's tokenizer has no token %s, which the prompts of speech models need",
                   missing);
}

static struct text_piece piece(const char *text, bool control) {
    return (struct text_piece){ text, strlen(text), control };
}

/* Takes the one audio token out and remembers where it stood. */
static enum reel_status split(struct asr_prompt *prompt, int32_t *ids, size_t n, int32_t audio,
                              struct reel_error *err) {
    size_t at = 0;
    if (n > INT_MAX) return err_set(err, REEL_E_LIMIT, "the context has %zu tokens", n);
    while (at < n && ids[at] != audio)
        at++;
    if (at + 1 >= n)
        return err_set(
            err, REEL_E_FORMAT,
            "the model's tokenizer takes \"<|audio_pad|>\" apart; it should be one token");
    memmove(ids + at, ids + at + 1, (n - at - 1) * sizeof *ids);
    *prompt = (struct asr_prompt){ .ids = ids, .n_prefix = (int)at, .n_suffix = (int)(n - at - 1) };
    return REEL_OK;
}

enum reel_status asr_prompt_build(struct asr_prompt *prompt, const struct reel_tokenizer *tok,
                                  const char *context, const char *language,
                                  struct reel_error *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    *prompt = (struct asr_prompt){ 0 };
    enum reel_status status = check_controls(tok, language, err);
    if (status != REEL_OK) return status;
    /* One text, as the reference encodes it: pieces of it alone might merge otherwise. */
    const struct text_piece pieces[] = {
        piece("<|im_start|>system\n", true),
        piece(context ? context : "", false),
        piece("<|im_end|>\n<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n"
              "<|im_start|>assistant\n",
              true),
        piece(language ? "language " : "", false),
        piece(language ? language : "", false),
        piece(language ? "<asr_text>" : "", true),
    };
    status = tokenizer_encode(tok, pieces, (int)(sizeof pieces / sizeof *pieces), &ids, &n, err);
    if (status == REEL_OK)
        status = split(prompt, ids, n, tokenizer_find_added(tok, "<|audio_pad|>"), err);
    if (status != REEL_OK) mem_free(ids);
    return status;
}

void asr_prompt_release(struct asr_prompt *prompt) {
    mem_free(prompt->ids);
    *prompt = (struct asr_prompt){ 0 };
}
