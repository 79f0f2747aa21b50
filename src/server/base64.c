#include "server/base64.h"

#include <stdint.h>

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

static bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Three bytes of four digits; of two or three digits at the end, one or two. */
static enum reel_status put(struct buffer *out, uint32_t bits, int n_digits,
                            struct reel_error *err) {
    unsigned char bytes[3] = { (unsigned char)(bits >> 16), (unsigned char)(bits >> 8),
                               (unsigned char)bits };
    return buffer_append(out, bytes, (size_t)(n_digits - 1), err);
}

enum reel_status base64_read(struct buffer *out, const char *text, size_t n_bytes,
                             struct reel_error *err) {
    uint32_t bits = 0;
    int n = 0;
    size_t i = 0;
    enum reel_status status = REEL_OK;
    for (; i < n_bytes && text[i] != '=' && status == REEL_OK; i++) {
        if (is_white(text[i])) continue;
        int value = digit(text[i]);
        if (value < 0)
            return err_set(err, REEL_E_FORMAT, "no base64 at byte %zu of %zu", i, n_bytes);
        bits = bits << 6 | (uint32_t)value;
        if (++n < 4) continue;
        status = put(out, bits, 4, err);
        bits = 0;
        n = 0;
    }
    if (status != REEL_OK) return status;
    for (size_t j = i; j < n_bytes; j++)
        if (text[j] != '=' && !is_white(text[j]))
            return err_set(err, REEL_E_FORMAT, "base64 goes on behind its end at byte %zu", j);
    if (n == 1) return err_set(err, REEL_E_FORMAT, "base64 ends inside a byte");
    return n > 1 ? put(out, bits << 6 * (4 - n), n, err) : REEL_OK;
}

enum reel_status base64_write(struct buffer *out, const void *bytes, size_t n_bytes,
                              struct reel_error *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < n_bytes && status == REEL_OK; i += 3) {
        size_t n = n_bytes - i < 3 ? n_bytes - i : 3;
        uint32_t bits = (uint32_t)in[i] << 16;
        if (n > 1) bits |= (uint32_t)in[i + 1] << 8;
        if (n > 2) bits |= in[i + 2];
        char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63],
                         n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63] : '=' };
        status = buffer_append(out, four, 4, err);
    }
    return status;
}
