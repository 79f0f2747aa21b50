#!/bin/sh
# Writes the C file that carries model folders inside the program, with demo_model_files() of
# src/cli/demo_model.h. The assembler reads the bytes, so 19 MB cost the compiler nothing.
# usage: tools/embed_demo.sh NAME FOLDER [NAME FOLDER]...; a folder without weights is left out
set -eu
files='config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors golden.json'

echo '/* Made by tools/embed_demo.sh. */'
echo '#include "cli/demo_model.h"'
echo '#include <string.h>'
n=0 models=''
while [ $# -gt 1 ]; do
    name=$1 folder=$2 rows='' n_rows=0
    shift 2
    [ -f "$folder/model.safetensors" ] || continue
    for file in $files; do
        # 64: weights are read with aligned vector loads.
        cat <<END
extern const char reel_demo_${n}[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n.balign 64\n.global reel_demo_$n\n.hidden reel_demo_$n\n"
        "reel_demo_$n:\n.incbin \"$folder/$file\"\n.byte 0\n.popsection\n");
END
        rows="$rows    { \"$file\", reel_demo_$n, $(wc -c <"$folder/$file") },
"
        n=$((n + 1)) n_rows=$((n_rows + 1))
    done
    echo "static const struct reel_memory_file files_${n}[$n_rows] = {"
    echo "$rows};"
    models="$models    if (strcmp(name, \"$name\") == 0) return *n_files = $n_rows, files_$n;
"
done
cat <<END
const struct reel_memory_file *demo_model_files(const char *name, int *n_files) {
    (void)name;
$models    *n_files = 0;
    return NULL;
}
END
