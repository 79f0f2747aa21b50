/* Fixtures that are committed compressed, unpacked into the build folder when first asked for. */
#ifndef REEL_TESTS_FIXTURES_H
#define REEL_TESTS_FIXTURES_H

#include "base/file_map.h"

/* Where the file lies unpacked, for tests/fixtures/NAME.xz: $REEL_BUILD/fixtures/NAME. NULL, with
 * a line on standard error, when it cannot be unpacked. The path is good until the program ends. */
const char *fixture_path(const char *name);

/* The same, as bytes; the caller closes the map. False when it cannot be had. */
bool fixture_map(struct file_map *map, const char *name);

/* A folder that holds the tokenizer files of a family: "qwen3", "smollm2" or "qwen3.5". NULL on
 * failure. */
const char *fixture_tokenizer(const char *family);

#endif
