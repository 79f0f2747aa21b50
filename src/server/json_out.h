/* JSON written piece by piece, for answers that are made a token at a time. */
#ifndef REEL_SERVER_JSON_OUT_H
#define REEL_SERVER_JSON_OUT_H

#include "base/buffer.h"

/* "text" with its quotes; what is no UTF-8 becomes U+FFFD. NULL gives null. */
enum reel_status json_out_text(struct buffer *out, const char *text, size_t n_bytes,
                               struct reel_error *err);
enum reel_status json_out_string(struct buffer *out, const char *text, struct reel_error *err);

bool json_out_is_text(const char *text, size_t n_bytes); /* whole characters of UTF-8 */

#endif
