#!/bin/sh
# Writes a C file that carries a text inside the program, as `const char NAME[]` that ends with a NUL; the assembler
# reads the bytes.
# usage: tools/embed_text.sh NAME FILE
set -eu
cat <<END
/* Made by tools/embed_text.sh. */
extern const char $1[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n.global $1\n.hidden $1\n"
        "$1:\n.incbin \"$2\"\n.byte 0\n.popsection\n");
END
