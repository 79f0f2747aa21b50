/* tokenizer.model: SentencePiece's own file, a protobuf message of sentencepiece_model.proto. Its
 * text has a space put in front as SentencePiece does it. What Hugging Face's class adds around it
 * is said by tokenizer_config.json: which tokens begin and end a text, and with "legacy" false,
 * that a text behind an added token gets no space. */
#include "base/json.h"
#include "base/memory.h"
#include "model/tokenizer_parts.h"
#include "model/tokenizer_protobuf.h"

/* Field numbers of sentencepiece_model.proto. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_MODEL_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_BYTE_FALLBACK = 35 };
enum {
    NORMALIZER_NAME = 1,
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_DUMMY_PREFIX = 3,
    NORMALIZER_EXTRA_SPACES = 4,
    NORMALIZER_ESCAPE = 5
};
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct reader {
    struct tokenizer_parts *parts;
    float *scores; /* [capacity] */
    size_t n, capacity;
    int64_t unknown; /* the piece of that type, or -1 */
    uint64_t model_type;
    bool byte_fallback, suffix, dummy_prefix, remove_spaces, escape;
    char name[64]; /* of the normaliser */
    size_t charsmap_bytes;
};

static enum reel_status broken(const struct reader *r, const char *what, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: not a SentencePiece model: %s is broken",
                   r->parts->name, what);
}

static enum reel_status add_byte(struct reader *r, int64_t id, const char *text, size_t n,
                                 struct reel_error *err) {
    enum reel_status status = parts_add_word(r->parts, id, text, n, err);
    if (status != REEL_OK || r->parts->tokens[id].flags & TOKEN_BYTE) return status;
    return err_set(err, REEL_E_FORMAT,
                   "%s: piece %lld \"%.*s\" has type byte: its text must be one of \"<0x00>\" to "
                   "\"<0xFF>\"",
                   r->parts->name, (long long)id, (int)(n < 40 ? n : 40), text);
}

static enum reel_status add_unknown(struct reader *r, int64_t id, const char *text, size_t n,
                                    struct reel_error *err) {
    if (r->unknown >= 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: pieces %lld and %lld both have type unknown (2): one piece has it",
                       r->parts->name, (long long)r->unknown, (long long)id);
    r->unknown = id;
    return parts_add_token(r->parts, id, text, n, true, err);
}

static enum reel_status add_piece(struct reader *r, uint64_t type, const char *text, size_t n,
                                  struct reel_error *err) {
    int64_t id = (int64_t)r->n - 1;
    switch (type) {
    case TYPE_NORMAL:
        return parts_add_word(r->parts, id, text, n, err);
    case TYPE_BYTE:
        return add_byte(r, id, text, n, err);
    case TYPE_UNKNOWN:
        return add_unknown(r, id, text, n, err);
    case TYPE_CONTROL:
        return parts_add_token(r->parts, id, text, n, true, err);
    case TYPE_USER_DEFINED:
        return parts_add_token(r->parts, id, text, n, false, err);
    default:
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: piece %lld has type %llu%s: normal, unknown, control, user-defined and "
                       "byte pieces are supported",
                       r->parts->name, (long long)id, (unsigned long long)type,
                       type == TYPE_UNUSED ? " (unused)" : "");
    }
}

static enum reel_status read_piece(struct reader *r, const struct proto_field *piece,
                                   struct reel_error *err) {
    struct proto message = proto_start(piece->bytes, piece->n_bytes);
    struct proto_field field, text = { 0 };
    uint64_t type = TYPE_NORMAL;
    float score = 0;
    while (proto_next(&message, &field)) {
        if (field.number == PIECE_TEXT && field.kind == PROTO_BYTES) text = field;
        if (field.number == PIECE_SCORE && field.kind == PROTO_FIXED32) score = proto_float(&field);
        if (field.number == PIECE_TYPE && field.kind == PROTO_VARINT) type = field.value;
    }
    if (message.broken)
        return err_set(err, REEL_E_FORMAT,
                       "%s: not a SentencePiece model: piece %zu is broken: a text, a score and a "
                       "type must lie within its %zu bytes",
                       r->parts->name, r->n, piece->n_bytes);
    if (r->n >= TOKENIZER_MAX_TOKENS)
        return err_set(err, REEL_E_LIMIT, "%s: more than %d pieces: no more are supported",
                       r->parts->name, TOKENIZER_MAX_TOKENS);
    enum reel_status status =
        parts_grow(&r->scores, r->n + 1, &r->capacity, sizeof *r->scores, err);
    if (status != REEL_OK) return status;
    r->scores[r->n++] = score;
    const char *bytes = text.bytes ? (const char *)text.bytes : "";
    return add_piece(r, type, bytes, text.n_bytes, err);
}

static enum reel_status read_trainer(struct reader *r, const struct proto_field *trainer,
                                     struct reel_error *err) {
    struct proto message = proto_start(trainer->bytes, trainer->n_bytes);
    struct proto_field field;
    while (proto_next(&message, &field)) {
        if (field.kind != PROTO_VARINT) continue;
        if (field.number == TRAINER_MODEL_TYPE) r->model_type = field.value;
        if (field.number == TRAINER_BYTE_FALLBACK) r->byte_fallback = field.value != 0;
        if (field.number == TRAINER_SUFFIX) r->suffix = field.value != 0;
    }
    return message.broken ? broken(r, "trainer_spec", err) : REEL_OK;
}

static enum reel_status read_normalizer(struct reader *r, const struct proto_field *normalizer,
                                        struct reel_error *err) {
    struct proto message = proto_start(normalizer->bytes, normalizer->n_bytes);
    struct proto_field field;
    while (proto_next(&message, &field)) {
        bool flag = field.value != 0, is_flag = field.kind == PROTO_VARINT;
        if (field.number == NORMALIZER_NAME && field.kind == PROTO_BYTES) {
            size_t n = field.n_bytes < sizeof r->name ? field.n_bytes : sizeof r->name - 1;
            memcpy(r->name, field.bytes, n);
            r->name[n] = '\0';
        }
        if (field.number == NORMALIZER_CHARSMAP && field.kind == PROTO_BYTES)
            r->charsmap_bytes = field.n_bytes;
        if (field.number == NORMALIZER_DUMMY_PREFIX && is_flag) r->dummy_prefix = flag;
        if (field.number == NORMALIZER_EXTRA_SPACES && is_flag) r->remove_spaces = flag;
        if (field.number == NORMALIZER_ESCAPE && is_flag) r->escape = flag;
    }
    return message.broken ? broken(r, "normalizer_spec", err) : REEL_OK;
}

static enum reel_status unsupported(const struct reader *r, const char *what,
                                    struct reel_error *err) {
    return err_set(err, REEL_E_UNSUPPORTED, "%s: SentencePiece with %s is not supported",
                   r->parts->name, what);
}

static enum reel_status check_settings(const struct reader *r, struct reel_error *err) {
    if (r->model_type != MODEL_BPE)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: trainer_spec.model_type is %llu (%s); only BPE (2) is supported",
                       r->parts->name, (unsigned long long)r->model_type,
                       r->model_type == MODEL_UNIGRAM ? "unigram" : "words or characters");
    if (!r->byte_fallback) return unsupported(r, "trainer_spec.byte_fallback false", err);
    if (r->suffix) return unsupported(r, "trainer_spec.treat_whitespace_as_suffix true", err);
    if (r->charsmap_bytes)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: the normalizer \"%s\" changes characters (%zu bytes of "
                       "precompiled_charsmap); only identity is supported",
                       r->parts->name, r->name, r->charsmap_bytes);
    if (r->remove_spaces)
        return unsupported(r, "normalizer_spec.remove_extra_whitespaces true", err);
    if (!r->escape) return unsupported(r, "normalizer_spec.escape_whitespaces false", err);
    return REEL_OK;
}

static enum reel_status read_model(struct reader *r, const struct file_map *file,
                                   struct reel_error *err) {
    struct proto message = proto_start(file->bytes, file->size);
    struct proto_field field;
    enum reel_status status = REEL_OK;
    const unsigned char *at = message.next;
    for (; status == REEL_OK && proto_next(&message, &field); at = message.next) {
        if (field.kind != PROTO_BYTES) continue;
        if (field.number == MODEL_PIECE) status = read_piece(r, &field, err);
        if (field.number == MODEL_TRAINER) status = read_trainer(r, &field, err);
        if (field.number == MODEL_NORMALIZER) status = read_normalizer(r, &field, err);
    }
    if (status != REEL_OK) return status;
    if (message.broken)
        return err_set(
            err, REEL_E_FORMAT,
            "%s: not a SentencePiece model: the field at byte %zu, behind %zu piece%s, is "
            "broken: it must end within the file's %zu bytes",
            r->parts->name, (size_t)(at - file->bytes), r->n, r->n == 1 ? "" : "s", file->size);
    if (r->n == 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: not a SentencePiece model: it has no pieces: 1 to %d are supported",
                       r->parts->name, TOKENIZER_MAX_TOKENS);
    if (r->unknown < 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: not one of %zu pieces has type unknown (2): one must have it",
                       r->parts->name, r->n);
    return check_settings(r, err);
}

/* What Hugging Face's class makes of the file. Where nothing is said, "legacy" is true and "<s>"
 * starts a text. config may be NULL. */
static enum reel_status apply_config(struct tokenizer_parts *parts, const json_t *config,
                                     struct reel_error *err) {
    bool legacy = true, prefix = true;
    enum reel_status status = json_get_bool(config, parts->name, "legacy", true, &legacy, err);
    if (status == REEL_OK)
        status = json_get_bool(config, parts->name, "add_prefix_space", true, &prefix, err);
    if (status == REEL_OK) status = parts_add_config_tokens(parts, config, err);
    if (status == REEL_OK) status = parts_add_config_around(parts, config, false, "<s>", err);
    if (status == REEL_OK) status = parts_add_config_around(parts, config, true, NULL, err);
    if (!legacy && parts->prefix == PREFIX_EACH) parts->prefix = PREFIX_FIRST;
    if (!prefix) parts->prefix = PREFIX_NONE;
    return status;
}

enum reel_status parts_from_added(struct tokenizer_parts *parts, const char *name,
                                  const struct file_map *file, struct reel_error *err) {
    json_t *root = NULL;
    const char *before = parts->name;
    parts->name = name;
    enum reel_status status = json_read(&root, name, file->bytes, file->size, err);
    if (status == REEL_OK && !json_is_object(root))
        status = err_set(err, REEL_E_FORMAT, "%s: must be an object of texts and ids", name);
    for (void *i = json_object_iter(root); status == REEL_OK && i;
         i = json_object_iter_next(root, i)) {
        const char *text = json_object_iter_key(i);
        const json_t *id = json_object_iter_value(i);
        if (!json_is_integer(id))
            status = err_set(err, REEL_E_FORMAT, "%s: the id of \"%.40s\" must be an integer", name,
                             text);
        else
            status = parts_add_token(parts, json_integer_value(id), text, strlen(text), false, err);
    }
    json_decref(root);
    parts->name = before;
    return status;
}

enum reel_status parts_from_spm(struct tokenizer_parts *parts, const char *name,
                                const struct file_map *file, const char *config_name,
                                const struct file_map *config, struct reel_error *err) {
    struct reader r = { .parts = parts,
                        .unknown = -1,
                        .model_type = MODEL_UNIGRAM, /* what leaving it out means, and so below */
                        .dummy_prefix = true,
                        .remove_spaces = true,
                        .escape = true };
    parts->name = name;
    parts->kind = KIND_SENTENCEPIECE;
    enum reel_status status = read_model(&r, file, err);
    if (status == REEL_OK) status = parts_add_scored_merges(parts, r.scores, err);
    mem_free(r.scores);
    if (status != REEL_OK) return status;
    if (r.dummy_prefix) parts->prefix = PREFIX_EACH;
    json_t *root = NULL;
    if (config) parts->name = config_name;
    if (config) status = json_read(&root, config_name, config->bytes, config->size, err);
    if (status == REEL_OK) status = apply_config(parts, root, err);
    json_decref(root);
    parts->name = name;
    parts->strip = parts->prefix != PREFIX_NONE;
    return status;
}
