#include "support/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct buffer *out, const char *text) {
    if (buffer_text(out, text, NULL) != REEL_OK) abort();
}

/* The byte alphabet has one character for each byte below U+0144, but not the ones that cannot be
 * printed. Written as JSON escapes. */
static void add_bytes(struct buffer *out) {
    char entry[32];
    int id = 0;
    for (int c = 0x21; c < 0x144; c++) {
        if ((c >= 0x7f && c <= 0xa0) || c == 0xad) continue;
        snprintf(entry, sizeof entry, "\"\\u%04x\": %d,\n", (unsigned)c, id++);
        add(out, entry);
    }
}

void small_tokenizer_json(struct buffer *out) {
    add(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
             "\"added_tokens\": [\n"
             "{\"id\": 261, \"content\": \"<|end|>\", \"single_word\": false, \"lstrip\": false, "
             "\"rstrip\": false, \"normalized\": false, \"special\": true},\n"
             "{\"id\": 262, \"content\": \"<think>\", \"single_word\": false, \"lstrip\": false, "
             "\"rstrip\": false, \"normalized\": false, \"special\": false}],\n"
             "\"normalizer\": {\"type\": \"NFC\"},\n"
             "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
             "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    add(out,
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
        "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");
    add(out, "\"}, \"behavior\": \"Isolated\", \"invert\": false},\n"
             "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, "
             "\"use_regex\": false}]},\n"
             "\"post_processor\": {\"type\": \"ByteLevel\"},\n"
             "\"decoder\": {\"type\": \"ByteLevel\"},\n"
             "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
             "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\",\n"
             "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
             "\"vocab\": {");
    add_bytes(out);
    add(out, "\"he\": 256, \"ll\": 257, \"hell\": 258, \"hello\": 259, \"\\u0120hello\": 260},\n"
             "\"merges\": [\"h e\", \"l l\", [\"he\", \"ll\"], \"hell o\", \"\\u0120 hello\"]}}\n");
}

void replace_once(struct buffer *text, const char *from, const char *to) {
    const char *found = strstr(text->bytes, from);
    if (!found) {
        fprintf(stderr, "\"%s\" is not there\n", from);
        abort();
    }
    size_t at = (size_t)(found - text->bytes);
    struct buffer changed = { 0 };
    if (buffer_append(&changed, text->bytes, at, NULL) != REEL_OK) abort();
    add(&changed, to);
    add(&changed, found + strlen(from));
    buffer_release(text);
    *text = changed;
}
