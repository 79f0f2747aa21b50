#include "server/json_out.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the character that begins here; 0: none does. */
static size_t character(const unsigned char *p, size_t left) {
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : 4;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0; /* too long a form */
    if (p[0] == 0xed && p[1] > 0x9f) return 0; /* half of a pair */
    if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

static enum reel_status put_escaped(struct buffer *out, unsigned char c, struct reel_error *err) {
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (size_t i = 0; letters[i]; i += 2)
        if ((unsigned char)letters[i] == c) {
            char two[2] = { '\\', letters[i + 1] };
            return buffer_append(out, two, 2, err);
        }
    return buffer_printf(out, err, "\\u%04x", c);
}

enum reel_status json_out_text(struct buffer *out, const char *text, size_t n_bytes,
                               struct reel_error *err) {
    if (!text) return buffer_text(out, "null", err);
    const unsigned char *p = (const unsigned char *)text;
    enum reel_status status = buffer_append(out, "\"", 1, err);
    for (size_t i = 0; i < n_bytes && status == REEL_OK;) {
        size_t plain = i;
        while (plain < n_bytes && is_plain(p[plain]))
            plain++;
        if (plain > i) status = buffer_append(out, p + i, plain - i, err);
        i = plain;
        if (i == n_bytes || status != REEL_OK) break;
        size_t n = character(p + i, n_bytes - i);
        if (n == 0) {
            status = buffer_text(out, "\xef\xbf\xbd", err);
        } else if (n == 1) {
            status = put_escaped(out, p[i], err);
        } else {
            status = buffer_append(out, p + i, n, err);
        }
        i += n ? n : 1;
    }
    return status == REEL_OK ? buffer_append(out, "\"", 1, err) : status;
}

bool json_out_is_text(const char *text, size_t n_bytes) {
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0, n; i < n_bytes; i += n)
        if ((n = character(p + i, n_bytes - i)) == 0) return false;
    return true;
}

enum reel_status json_out_string(struct buffer *out, const char *text, struct reel_error *err) {
    return json_out_text(out, text, text ? strlen(text) : 0, err);
}
