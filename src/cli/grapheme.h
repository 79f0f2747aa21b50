/* Grapheme clusters of UTF-8 text: what a reader takes for one character, such as a letter with its
 * accents or an emoji of several parts.
 *
 * Terminals do not agree on how wide a cluster is. Some give an emoji of three people the two
 * columns of one picture, most add up its parts. What is said here is the most that any of them
 * takes, so that a row which is filled by it never overflows. */
#ifndef REEL_CLI_GRAPHEME_H
#define REEL_CLI_GRAPHEME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `at`, at least 1; *c is its code, U+FFFD for what is no character. */
size_t character_read(const char *text, size_t n, size_t at, int32_t *c);

/* The most columns of one character alone. Control characters count as the '?' that stands for
 * them. */
int character_columns(int32_t c);

/* Where the cluster that begins at `at` (less than n) ends. columns may be NULL. */
size_t grapheme_end(const char *text, size_t n, size_t at, int *columns);

/* Where the cluster that ends at `at` (more than 0) begins. */
size_t grapheme_begin(const char *text, size_t n, size_t at);

/* Whether c belongs into words: letters, digits and marks of any script. */
bool character_in_word(int32_t c);

#endif
