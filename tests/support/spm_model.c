#include "tests/support/spm_model.h"

#include "model/tokenizer_protobuf.h"
#include "tests/support/fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81"

static void give_up(void) {
    fprintf(stderr, "spm_model: no memory\n");
    exit(1);
}

static void text(struct buffer *out, const char *s) {
    if (buffer_text(out, s, NULL) != REEL_OK) give_up();
}

static void bytes(struct buffer *out, const void *p, size_t n) {
    if (buffer_append(out, p, n, NULL) != REEL_OK) give_up();
}

/* ---- tokenizer.model ---- */

static void read_piece(struct spm_piece *piece, const struct proto_field *from) {
    struct proto message = proto_start(from->bytes, from->n_bytes);
    struct proto_field field;
    *piece = (struct spm_piece){ .text = "", .type = 1 };
    while (proto_next(&message, &field)) {
        if (field.number == 1) {
            piece->text = (const char *)field.bytes;
            piece->n = field.n_bytes;
        }
        if (field.number == 2) piece->score = proto_float(&field);
        if (field.number == 3) piece->type = (int)field.value;
    }
}

bool spm_model_open(struct spm_model *m, const char *name) {
    char path[256];
    struct proto_field field;
    *m = (struct spm_model){ 0 };
    snprintf(path, sizeof path, "tokenizers/%s/tokenizer.model", name);
    if (!fixture_map(&m->file, path)) return false;
    m->pieces = calloc(m->file.size / 2, sizeof *m->pieces);
    if (!m->pieces) give_up();
    struct proto message = proto_start(m->file.bytes, m->file.size);
    while (proto_next(&message, &field))
        if (field.number == 1) read_piece(&m->pieces[m->n++], &field);
    return !message.broken && m->n > 0;
}

void spm_model_close(struct spm_model *m) {
    free(m->pieces);
    file_map_close(&m->file);
    *m = (struct spm_model){ 0 };
}

/* ---- merges, in the order of transformers' generate_merges ---- */

struct merge {
    const struct spm_piece *piece;
    size_t left_n, left_characters, right_characters, left_id, right_id;
};

static int order_texts(const void *a, const void *b) {
    const struct spm_piece *x = *(const struct spm_piece *const *)a;
    const struct spm_piece *y = *(const struct spm_piece *const *)b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static int order_numbers(size_t a, size_t b) { return (a > b) - (a < b); }

/* Score, characters of the left and of the right, all falling; then as they were made. */
static int order_merges(const void *a, const void *b) {
    const struct merge *x = a, *y = b;
    if (x->piece->score != y->piece->score) return x->piece->score < y->piece->score ? 1 : -1;
    int order = order_numbers(y->left_characters, x->left_characters);
    if (!order) order = order_numbers(y->right_characters, x->right_characters);
    if (!order && x->piece != y->piece) order = x->piece < y->piece ? -1 : 1;
    if (!order) order = order_numbers(x->left_id, y->left_id);
    return order ? order : order_numbers(x->right_id, y->right_id);
}

static size_t characters(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

static const struct spm_piece *find(const struct spm_piece *const *sorted, size_t n, const char *s,
                                    size_t bytes_n) {
    const struct spm_piece wanted = { .text = s, .n = bytes_n }, *key = &wanted;
    const struct spm_piece *const *found = bsearch(&key, sorted, n, sizeof *sorted, order_texts);
    return found ? *found : NULL;
}

static struct merge *make_merges(const struct spm_model *m, size_t *n) {
    const struct spm_piece **sorted = calloc(m->n, sizeof *sorted);
    struct merge *merges = calloc(m->file.size, sizeof *merges);
    if (!sorted || !merges) give_up();
    for (size_t i = 0; i < m->n; i++)
        sorted[i] = &m->pieces[i];
    qsort(sorted, m->n, sizeof *sorted, order_texts);
    *n = 0;
    for (size_t i = 0; i < m->n; i++) {
        const struct spm_piece *p = &m->pieces[i];
        for (size_t k = 1; k < p->n; k++) {
            if (((unsigned char)p->text[k] & 0xc0) == 0x80) continue;
            const struct spm_piece *left = find(sorted, m->n, p->text, k);
            const struct spm_piece *right = find(sorted, m->n, p->text + k, p->n - k);
            if (left && right)
                merges[(*n)++] = (struct merge){ p,
                                                 k,
                                                 characters(p->text, k),
                                                 characters(p->text + k, p->n - k),
                                                 (size_t)(left - m->pieces),
                                                 (size_t)(right - m->pieces) };
        }
    }
    qsort(merges, *n, sizeof *merges, order_merges);
    free(sorted);
    return merges;
}

/* ---- tokenizer.json ---- */

static void quoted(struct buffer *out, const char *s, size_t n) {
    text(out, "\"");
    for (size_t i = 0; i < n; i++) {
        char escaped[8];
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == '"' || c == '\\') {
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
            text(out, escaped);
        } else {
            bytes(out, s + i, 1);
        }
    }
    text(out, "\"");
}

static void put_added(const struct spm_model *m, struct buffer *out) {
    const char *comma = "";
    text(out, "\"added_tokens\": [");
    for (size_t i = 0; i < m->n; i++) {
        char id[120];
        const struct spm_piece *p = &m->pieces[i];
        if (p->type < 2 || p->type > 4) continue;
        snprintf(id, sizeof id,
                 "%s{\"id\": %zu, \"normalized\": false, \"special\": %s, \"content\": ", comma, i,
                 p->type == 4 ? "false" : "true");
        text(out, id);
        quoted(out, p->text, p->n);
        text(out, "}");
        comma = ",\n";
    }
    text(out, "],\n");
}

static void put_spaces(const char *layout, struct buffer *out) {
    if (strcmp(layout, "prepend") == 0) {
        text(out, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
                  "{\"type\": \"Prepend\", \"prepend\": \"" SPACE "\"}, "
                  "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE
                  "\"}]},\n\"pre_tokenizer\": null,\n");
        return;
    }
    char scheme[16];
    snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(layout, " "), layout);
    text(out, "\"normalizer\": null,\n\"pre_tokenizer\": {\"type\": \"Metaspace\", "
              "\"replacement\": \"" SPACE "\", \"prepend_scheme\": \"");
    text(out, scheme);
    text(out, strchr(layout, ' ') ? "\", \"split\": true},\n" : "\", \"split\": false},\n");
}

static void put_vocabulary(const struct spm_model *m, struct buffer *out) {
    size_t n;
    struct merge *merges = make_merges(m, &n);
    char id[32];
    text(out, "\"vocab\": {");
    for (size_t i = 0; i < m->n; i++) {
        quoted(out, m->pieces[i].text, m->pieces[i].n);
        snprintf(id, sizeof id, ": %zu%s", i, i + 1 < m->n ? ", " : "");
        text(out, id);
    }
    text(out, "}, \"merges\": [");
    for (size_t i = 0; i < n; i++) {
        const struct merge *merge = &merges[i];
        text(out, i ? ", [" : "[");
        quoted(out, merge->piece->text, merge->left_n);
        text(out, ", ");
        quoted(out, merge->piece->text + merge->left_n, merge->piece->n - merge->left_n);
        text(out, "]");
    }
    text(out, "]");
    free(merges);
}

void spm_model_json(const struct spm_model *m, const char *layout, struct buffer *out) {
    bool strip = strcmp(layout, "never") != 0;
    text(out, "{\"version\": \"1.0\",\n");
    put_added(m, out);
    put_spaces(layout, out);
    text(out, "\"post_processor\": null,\n\"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
              "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE
              "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    if (strip) text(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    text(out, "]},\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\", "
              "\"fuse_unk\": true, \"byte_fallback\": true, ");
    put_vocabulary(m, out);
    text(out, "}}\n");
}

/* ---- GGUF ---- */

static void u32(struct buffer *out, uint32_t value) { bytes(out, &value, sizeof value); }
static void u64(struct buffer *out, uint64_t value) { bytes(out, &value, sizeof value); }

static void string(struct buffer *out, const char *s, size_t n) {
    u64(out, n);
    bytes(out, s, n);
}

enum { G_U32 = 4, G_I32 = 5, G_F32 = 6, G_BOOL = 7, G_STRING = 8, G_ARRAY = 9 };

static void key(struct buffer *out, const char *name, uint32_t type) {
    string(out, name, strlen(name));
    u32(out, type);
}

static void list(struct buffer *out, const char *name, uint32_t type, size_t n) {
    key(out, name, G_ARRAY);
    u32(out, type);
    u64(out, n);
}

void spm_model_gguf(const struct spm_model *m, struct buffer *out) {
    bytes(out, "GGUF", 4);
    u32(out, 3);
    u64(out, 0); /* tensors */
    u64(out, 8); /* values */
    key(out, "general.architecture", G_STRING);
    string(out, "llama", 5);
    key(out, "tokenizer.ggml.model", G_STRING);
    string(out, "llama", 5);
    key(out, "tokenizer.ggml.pre", G_STRING);
    string(out, "default", 7);
    list(out, "tokenizer.ggml.tokens", G_STRING, m->n);
    for (size_t i = 0; i < m->n; i++)
        string(out, m->pieces[i].text, m->pieces[i].n);
    list(out, "tokenizer.ggml.scores", G_F32, m->n);
    for (size_t i = 0; i < m->n; i++)
        bytes(out, &m->pieces[i].score, 4);
    list(out, "tokenizer.ggml.token_type", G_I32, m->n);
    for (size_t i = 0; i < m->n; i++)
        u32(out, (uint32_t)m->pieces[i].type);
    key(out, "tokenizer.ggml.add_bos_token", G_BOOL);
    bytes(out, "\1", 1);
    key(out, "tokenizer.ggml.bos_token_id", G_U32);
    u32(out, 1);
}
