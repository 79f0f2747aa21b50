#include "model/tokenizer_protobuf.h"

#include <string.h>

/* Seven bits a byte, the lowest first; at most ten bytes. */
static bool read_varint(struct proto *message, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 70 && message->next < message->end; shift += 7) {
        unsigned char byte = *message->next++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool read_fixed(struct proto *message, size_t n, uint64_t *value) {
    *value = 0;
    if ((size_t)(message->end - message->next) < n) return false;
    for (size_t i = 0; i < n; i++)
        *value |= (uint64_t)message->next[i] << 8 * i;
    message->next += n;
    return true;
}

static bool read_bytes(struct proto *message, struct proto_field *field) {
    uint64_t n;
    if (!read_varint(message, &n) || n > (uint64_t)(message->end - message->next)) return false;
    field->bytes = message->next;
    field->n_bytes = (size_t)n;
    message->next += field->n_bytes;
    return true;
}

static bool read_field(struct proto *message, struct proto_field *field) {
    uint64_t key;
    *field = (struct proto_field){ 0 };
    if (!read_varint(message, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) return false;
    field->number = (uint32_t)(key >> 3);
    field->kind = (enum proto_kind)(key & 7);
    switch (key & 7) {
    case PROTO_VARINT:
        return read_varint(message, &field->value);
    case PROTO_FIXED64:
        return read_fixed(message, 8, &field->value);
    case PROTO_FIXED32:
        return read_fixed(message, 4, &field->value);
    case PROTO_BYTES:
        return read_bytes(message, field);
    default: /* groups, which no file of this kind has */
        return false;
    }
}

bool proto_next(struct proto *message, struct proto_field *field) {
    if (message->broken || message->next == message->end) return false;
    message->broken = !read_field(message, field);
    return !message->broken;
}

float proto_float(const struct proto_field *field) {
    uint32_t bits = (uint32_t)field->value;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
