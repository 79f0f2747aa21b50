/* reel_synthesize: a model folder of synthetic weights. Not synced to disk: the bytes can be made
 * again. */
#include "base/memory.h"
#include "base/numbers.h"
#include "model/new_folder.h"
#include "model/synthetic.h"
#include "reel_measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILL_ELEMENTS ((size_t)1 << 19) /* written at a time: 1 or 2 MB */

struct writer {
    struct new_folder folder;
    const struct model_config *config;
    uint64_t seed;
    reel_progress_fn progress;
    void *progress_user;
};

static enum reel_status write_text(const struct writer *w, const char *name,
                                   const struct buffer *text, struct reel_error *err) {
    return new_file_write(&w->folder, name, text->bytes, text->size, err);
}

/* ---- model.safetensors ----------------------------------------------------------------------- */

static uint64_t tensor_elements(const struct synthetic_tensor *t) {
    return (uint64_t)t->rows * (uint64_t)t->columns;
}

static uint64_t tensor_bytes(const struct synthetic_tensor *t) {
    return tensor_elements(t) * (t->dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
}

static enum reel_status print_shape(struct buffer *out, const struct synthetic_tensor *t,
                                    struct reel_error *err) {
    switch (t->rank) {
    case 1:
        return buffer_printf(out, err, "%d", t->columns);
    case 2:
        return buffer_printf(out, err, "%d,%d", t->rows, t->columns);
    case 3:
        return buffer_printf(out, err, "%d,1,%d", t->rows, t->columns);
    default:
        return buffer_printf(out, err, "%d,%d,3,3", t->rows, t->columns / M_AUDIO_TAPS);
    }
}

/* Length and JSON header, as in the file; *payload receives the bytes that follow. */
static enum reel_status print_header(struct buffer *out, const struct writer *w, uint64_t *payload,
                                     struct reel_error *err) {
    static const char length_to_come[8];
    enum reel_status status = buffer_append(out, length_to_come, sizeof length_to_come, err);
    if (status == REEL_OK)
        status = buffer_printf(out, err,
                               "{\"__metadata__\":{\"format\":\"pt\",\"synthetic_seed\":"
                               "\"%" PRIu64 "\"}",
                               w->seed);
    *payload = 0;
    for (int i = 0; i < synthetic_tensor_count(w->config) && status == REEL_OK; i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(w->config, i, &t);
        uint64_t end = *payload + tensor_bytes(&t);
        status = buffer_printf(out, err, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t.name,
                               t.dtype == DTYPE_F32 ? "F32" : "BF16");
        if (status == REEL_OK) status = print_shape(out, &t, err);
        if (status == REEL_OK)
            status = buffer_printf(out, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                                   *payload, end);
        *payload = end;
    }
    if (status == REEL_OK) status = buffer_text(out, "}", err);
    while (status == REEL_OK && out->size % 8)
        status = buffer_text(out, " ", err);
    for (int i = 0; i < 8 && status == REEL_OK; i++)
        out->bytes[i] = (char)((uint64_t)(out->size - 8) >> (8 * i));
    return status;
}

/* Elements [first, first + n) in the type of the file; f32 ones are widened in place. */
static void fill(const struct synthetic_tensor *t, uint64_t seed, uint64_t first, size_t n,
                 uint16_t *elements) {
    synthetic_fill(t, seed, first, n, elements);
    if (t->dtype != DTYPE_F32) return;
    for (size_t i = n; i-- > 0;) {
        float value = bf16_to_f32(elements[i]);
        memcpy(elements + 2 * i, &value, sizeof value);
    }
}

static enum reel_status write_payload(const struct writer *w, const struct new_file *file,
                                      uint64_t payload, uint16_t *elements,
                                      struct reel_error *err) {
    uint64_t written = 0;
    for (int i = 0; i < synthetic_tensor_count(w->config); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(w->config, i, &t);
        const uint64_t n = tensor_elements(&t), size = tensor_bytes(&t) / n;
        for (uint64_t first = 0; first < n; first += FILL_ELEMENTS) {
            size_t count = n - first < FILL_ELEMENTS ? (size_t)(n - first) : FILL_ELEMENTS;
            if (w->progress && !w->progress(w->progress_user, "writing", written, payload))
                return err_set(err, REEL_E_CANCELLED, "%s: cancelled", file->shown);
            fill(&t, w->seed, first, count, elements);
            enum reel_status status = new_file_append(file, elements, count * size, err);
            if (status != REEL_OK) return status;
            written += count * size;
        }
    }
    return REEL_OK;
}

static enum reel_status write_weights(const struct writer *w, struct reel_error *err) {
    struct new_file file = { .fd = -1 };
    struct buffer header = { 0 };
    uint16_t *elements = NULL;
    uint64_t payload = 0;
    enum reel_status status = print_header(&header, w, &payload, err);
    if (status == REEL_OK)
        status = mem_zeroed(&elements, FILL_ELEMENTS, sizeof(float), "weights", err);
    if (status == REEL_OK) status = new_file_start(&file, &w->folder, "model.safetensors", err);
    if (status == REEL_OK) status = new_file_append(&file, header.bytes, header.size, err);
    if (status == REEL_OK) status = write_payload(w, &file, payload, elements, err);
    status = new_file_finish(&file, status, err);
    mem_free(elements);
    buffer_release(&header);
    return status;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* GPT-2's byte alphabet: printable bytes stand for themselves, the rest follow from U+0100 on.
 * Ids 0 to 255 in the order of the characters, as in GPT-2's and Qwen's vocabularies. */
static bool byte_is_printable(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static enum reel_status print_alphabet(struct buffer *out, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    int id = 0;
    for (int byte = 0; byte < 256 && status == REEL_OK; byte++) {
        if (!byte_is_printable(byte)) continue;
        status = buffer_printf(out, err, "%s\"\\u%04x\":%d", id ? "," : "", byte, id);
        id++;
    }
    for (int other = 256; id < 256 && status == REEL_OK; id++, other++)
        status = buffer_printf(out, err, ",\"\\u%04x\":%d", other, id);
    return status;
}

static const char tokenizer_head[] = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                                     "\"added_tokens\":[";

/* Qwen3's normaliser and split pattern. */
static const char tokenizer_middle[] =
    "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
    "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"trim_offsets\":false,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
    "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{";

static enum reel_status print_control(struct buffer *out, int id, const char *text, bool special,
                                      struct reel_error *err) {
    return buffer_printf(out, err,
                         "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,"
                         "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                         "\"special\":%s}",
                         id == SYNTHETIC_END_OF_TEXT ? "" : ",", id, text,
                         special ? "true" : "false");
}

/* Behind the ids that the config names. */
static int asr_text_id(const struct audio_config *c) {
    return int_max(c->token_id, int_max(c->start_id, c->end_id)) + 1;
}

/* The tokens around audio and before a transcript. */
static enum reel_status print_audio_tokens(struct buffer *out, const struct audio_config *c,
                                           struct reel_error *err) {
    if (!c->n_layers) return REEL_OK;
    enum reel_status status = print_control(out, c->start_id, "<|audio_start|>", true, err);
    if (status == REEL_OK) status = print_control(out, c->end_id, "<|audio_end|>", true, err);
    if (status == REEL_OK) status = print_control(out, c->token_id, "<|audio_pad|>", true, err);
    if (status == REEL_OK) status = print_control(out, asr_text_id(c), "<asr_text>", false, err);
    return status;
}

/* Words for the ids between the control tokens and those around audio, which no text gives: ids
 * have no holes. */
static enum reel_status print_between(struct buffer *out, const struct audio_config *c,
                                      struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (!c->n_layers) return REEL_OK;
    for (int id = SYNTHETIC_MIN_VOCAB; id < asr_text_id(c) && status == REEL_OK; id++)
        if (id != c->start_id && id != c->end_id && id != c->token_id)
            status = buffer_printf(out, err, ",\"<%d>\":%d", id, id);
    return status;
}

static enum reel_status print_tokenizer(struct buffer *out, const struct audio_config *audio,
                                        struct reel_error *err) {
    static const char *const control[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    enum reel_status status = buffer_text(out, tokenizer_head, err);
    for (int i = 0; i < 3 && status == REEL_OK; i++)
        status = print_control(out, SYNTHETIC_END_OF_TEXT + i, control[i], true, err);
    if (status == REEL_OK) status = print_audio_tokens(out, audio, err);
    if (status == REEL_OK) status = buffer_text(out, tokenizer_middle, err);
    if (status == REEL_OK) status = print_alphabet(out, err);
    if (status == REEL_OK) status = print_between(out, audio, err);
    if (status == REEL_OK) status = buffer_text(out, "},\"merges\":[]}}\n", err);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* config.json of `shape`: made from its name, or the bytes of the file it is the path of. */
static enum reel_status find_shape(struct buffer *text, const char *shape, struct reel_error *err) {
    bool found = false;
    enum reel_status status = synthetic_shape_config(text, shape, &found, err);
    if (status != REEL_OK || found) return status;
    struct file_map map = { 0 };
    status = file_map_open(&map, shape, err);
    if (status == REEL_OK) status = buffer_append(text, map.bytes, map.size, err);
    if (status == REEL_E_NOT_FOUND) {
        struct buffer names = { 0 };
        status = synthetic_shape_names(&names, err);
        if (status == REEL_OK)
            status = err_set(err, REEL_E_NOT_FOUND,
                             "%.200s: neither a file nor a known shape; known are %s", shape,
                             names.bytes);
        buffer_release(&names);
    }
    file_map_close(&map);
    return status;
}

/* The tokenizer has the tokens around audio at the ids of the config. */
static enum reel_status check_audio_ids(const struct audio_config *c, int vocab, const char *shape,
                                        struct reel_error *err) {
    const int ids[] = { c->start_id, c->end_id, c->token_id };
    for (int i = 0; i < 3; i++)
        if (ids[i] < SYNTHETIC_MIN_VOCAB || asr_text_id(c) >= vocab || ids[i] == ids[(i + 1) % 3])
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: audio_start_token_id, audio_end_token_id and audio_token_id are "
                           "%d, %d and %d: a byte-level tokenizer needs three different ones of %d "
                           "to %d",
                           shape, ids[0], ids[1], ids[2], SYNTHETIC_MIN_VOCAB, vocab - 2);
    return REEL_OK;
}

static enum reel_status read_shape(struct model_config *config, const char *shape,
                                   const struct buffer *text, struct reel_error *err) {
    struct reel_memory_file file = { "config.json", text->bytes, text->size };
    struct model_source source = { 0 };
    enum reel_status status = model_source_open_memory(&source, shape, &file, 1, err);
    if (status == REEL_OK) status = model_config_read(config, &source, err);
    if (status == REEL_OK && config->vocab < SYNTHETIC_MIN_VOCAB)
        status = err_set(err, REEL_E_UNSUPPORTED,
                         "%s: vocab_size is %d, a byte-level tokenizer needs at least %d", shape,
                         config->vocab, SYNTHETIC_MIN_VOCAB);
    if (status == REEL_OK && config->audio.n_layers)
        status = check_audio_ids(&config->audio, config->vocab, shape, err);
    model_source_release(&source);
    return status;
}

enum reel_status reel_synthesize(const char *folder, const char *shape, uint64_t seed,
                                 reel_progress_fn progress, void *progress_user,
                                 struct reel_error *err) {
    if (err) *err = (struct reel_error){ 0 };
    if (!folder || !*folder || !shape || !*shape)
        return err_set(err, REEL_E_ARGUMENT, "a folder and a shape must be given");
    struct model_config config;
    struct buffer config_text = { 0 }, tokenizer = { 0 };
    struct writer w = {
        .config = &config, .seed = seed, .progress = progress, .progress_user = progress_user
    };
    enum reel_status status = new_folder_check(folder, err); /* before a gigabyte is written */
    if (status == REEL_OK) status = find_shape(&config_text, shape, err);
    if (status == REEL_OK) status = read_shape(&config, shape, &config_text, err);
    if (status == REEL_OK) status = print_tokenizer(&tokenizer, &config.audio, err);
    if (status == REEL_OK) status = new_folder_start(&w.folder, folder, false, err);
    if (status == REEL_OK) status = write_text(&w, "config.json", &config_text, err);
    if (status == REEL_OK) status = write_text(&w, "tokenizer.json", &tokenizer, err);
    if (status == REEL_OK) status = write_weights(&w, err);
    status = new_folder_finish(&w.folder, folder, status, err);
    buffer_release(&config_text);
    buffer_release(&tokenizer);
    return status;
}
