#!/bin/sh
# Writes the C file that carries the page of `reel serve` inside the program, with page_files() of
# src/server/page_files.h. The files are gzipped, as every browser takes them; the assembler reads the
# bytes. A file's tag is a part of its SHA-256.
# usage: tools/embed_page.sh FOLDER FILE...   FOLDER: where the gzipped files go
set -eu
type_of() {
    case $1 in
    *.html) echo 'text/html; charset=utf-8' ;;
    *.css) echo 'text/css; charset=utf-8' ;;
    *.js) echo 'text/javascript; charset=utf-8' ;;
    *.svg) echo 'image/svg+xml' ;;
    *) echo "embed_page.sh: what type is $1?" >&2 && exit 1 ;;
    esac
}

out=$1
shift
mkdir -p "$out"
echo '/* Made by tools/embed_page.sh. */'
echo '#include "server/page_files.h"'
n=0 rows=''
for file; do
    type=$(type_of "$file")
    packed=$out/$(basename "$file").gz
    tag=$(sha256sum "$file" | cut -c 1-16)
    gzip -9n <"$file" >"$packed"
    cat <<END
extern const char reel_page_${n}[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n.global reel_page_$n\n.hidden reel_page_$n\n"
        "reel_page_$n:\n.incbin \"$packed\"\n.popsection\n");
END
    rows="$rows    { \"$(basename "$file")\", \"$type\", \"\\\"$tag\\\"\", reel_page_$n, $(wc -c <"$packed") },
"
    n=$((n + 1))
done
cat <<END
static const struct page_file files[] = {
$rows};
const struct page_file *page_files(int *n_files) {
    *n_files = $n;
    return files;
}
END
