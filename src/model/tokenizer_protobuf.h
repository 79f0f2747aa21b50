/* Reading protobuf's wire format: fields one after the other, each a number, a kind and a value.
 * Nothing is copied or allocated, and messages inside messages are read only where the caller opens
 * them, so that no input costs more than its length. */
#ifndef REEL_MODEL_TOKENIZER_PROTOBUF_H
#define REEL_MODEL_TOKENIZER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proto {
    const unsigned char *next, *end;
    bool broken; /* the bytes are no message */
};

enum proto_kind { PROTO_VARINT = 0, PROTO_FIXED64 = 1, PROTO_BYTES = 2, PROTO_FIXED32 = 5 };

struct proto_field {
    uint32_t number;
    enum proto_kind kind;
    uint64_t value;             /* of the kinds that are numbers */
    const unsigned char *bytes; /* [n_bytes], borrowed, of PROTO_BYTES */
    size_t n_bytes;
};

static inline struct proto proto_start(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    return (struct proto){ .next = p, .end = n ? p + n : p };
}

/* The next field; false at the end, and where the bytes are broken. */
bool proto_next(struct proto *message, struct proto_field *field);

/* The value of a PROTO_FIXED32 field as a float. */
float proto_float(const struct proto_field *field);

#endif
