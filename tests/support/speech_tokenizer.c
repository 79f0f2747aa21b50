#include "support/speech_tokenizer.h"

#include "support/fixtures.h"
#include "support/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void entry(struct buffer *out, int id, const char *content, bool special) {
    enum reel_status status = buffer_printf(
        out, NULL,
        "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
        "\"rstrip\": false, \"normalized\": false, \"special\": %s}",
        out->size ? ",\n" : "", id, content, special ? "true" : "false");
    if (status != REEL_OK) abort();
}

static void qwen3_entries(struct buffer *out) {
    static const char *const names[] = { "<|audio_start|>", "<|audio_end|>",
                                         "<tts_pad>",       "<tts_text_bos>",
                                         "<tts_text_eod>",  "<tts_text_bos_single>",
                                         "<non_speech>",    "<|audio_pad|>" };
    char blank[16];
    for (int i = 0; i < 8; i++)
        entry(out, 151669 + i, names[i], strcmp(names[i], "<non_speech>") != 0);
    for (int i = 1; i <= 27; i++) {
        snprintf(blank, sizeof blank, "<blank%d>", i);
        entry(out, 151676 + i, blank, true);
    }
    entry(out, 151704, "<asr_text>", false);
}

bool speech_tokenizer_qwen3(struct buffer *json) {
    /* what ends the fixture's list of added tokens */
    static const char end[] = "\n    }\n  ],\n  \"normalizer\"";
    struct file_map file = { 0 };
    struct buffer entries = { 0 }, changed = { 0 };
    if (!fixture_map(&file, "tokenizers/qwen3/tokenizer.json")) return false;
    bool good = buffer_append(&changed, file.bytes, file.size, NULL) == REEL_OK;
    qwen3_entries(&entries);
    if (good && buffer_text(&changed, "", NULL) == REEL_OK) {
        struct buffer text = { 0 };
        if (buffer_printf(&text, NULL, "\n    },\n%s\n  ],\n  \"normalizer\"", entries.bytes) !=
            REEL_OK)
            abort();
        replace_once(&changed, end, text.bytes);
        buffer_release(&text);
        *json = changed;
    }
    buffer_release(&entries);
    file_map_close(&file);
    return good;
}

void speech_tokenizer_small(struct buffer *json) {
    static const char *const names[] = { "<|endoftext|>",   "<|im_start|>",  "<|im_end|>",
                                         "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>",
                                         "<asr_text>" };
    struct buffer entries = { 0 };
    char old[400];
    for (int i = 0; i < 7; i++)
        entry(&entries, 261 + i, names[i], i < 6);
    small_tokenizer_json(json);
    snprintf(old, sizeof old, "%.*s",
             (int)(strstr(json->bytes, "],\n\"normalizer\"") - strstr(json->bytes, "{\"id\": 261")),
             strstr(json->bytes, "{\"id\": 261"));
    replace_once(json, old, entries.bytes);
    buffer_release(&entries);
}
