/* Base64 (RFC 4648, the usual alphabet). */
#ifndef REEL_SERVER_BASE64_H
#define REEL_SERVER_BASE64_H

#include "base/buffer.h"

/* Appends the bytes. White space is passed over, padding may be missing; anything else that is no
 * base64 is REEL_E_FORMAT with its offset. */
enum reel_status base64_read(struct buffer *out, const char *text, size_t n_bytes,
                             struct reel_error *err);
/* Appends the text, padded. */
enum reel_status base64_write(struct buffer *out, const void *bytes, size_t n_bytes,
                              struct reel_error *err);

#endif
