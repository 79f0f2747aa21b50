#!/bin/sh
# Refuses memory that reel_set_allocator does not reach: in src/ base/memory.c alone calls malloc and
# its kin. Prints each line that does otherwise.
set -u
cd "$(dirname "$0")/.." || exit 1
calls='(malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|strdup|strndup|realpath|getline|asprintf|open_memstream)'
found=$(for f in $(git ls-files 'src/*.c' 'src/*.h'); do
    [ "$f" = src/base/memory.c ] || sed 's|/\*.*\*/||' "$f" | grep -nE "(^|[^a-zA-Z_>.])$calls\(" | sed "s|^|$f:|"
done)
# the command line tool frees texts that jansson made
found=$(printf '%s' "$found" | grep -vE '^src/cli/[a-z_]*\.c:[0-9]*: *free\(text\);$')
[ -z "$found" ] && exit 0
printf 'memory is taken through base/memory.h:\n%s\n' "$found"
exit 1
