#include "model/tokenizer_utf8.h"

#include <string.h>

size_t utf8_valid_prefix(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, p + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        size_t length = (size_t)utf8_length(p[i]);
        if (length == 0 || length > n - i) return i;
        if (length > 1 && !utf8_second_ok(p[i], p[i + 1])) return i;
        for (size_t k = 2; k < length; k++)
            if ((p[i + k] & 0xc0) != 0x80) return i;
        i += length;
    }
    return n;
}
