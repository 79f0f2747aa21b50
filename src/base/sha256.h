/* SHA-256 (nettle), as lower-case hex. */
#ifndef REEL_BASE_SHA256_H
#define REEL_BASE_SHA256_H

#include <stddef.h>

#define SHA256_HEX 65 /* 64 digits and the terminator */

void sha256_hex(const void *bytes, size_t n, char hex[SHA256_HEX]);

#endif
