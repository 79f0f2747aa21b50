#!/bin/sh
# Writes the C file that carries the model folder $1 inside the program, with demo_model_files() of
# src/cli/demo_model.h. The assembler reads the bytes, so 12 MB cost the compiler nothing.
set -eu
folder=$1
files='config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors golden.json'

echo '/* Made by tools/embed_demo.sh. */'
echo '#include "cli/demo_model.h"'
if ! [ -f "$folder/model.safetensors" ]; then
    echo 'const struct reel_memory_file *demo_model_files(int *n_files) {'
    echo '    *n_files = 0;'
    echo '    return NULL;'
    echo '}'
    exit 0
fi
n=0
rows=''
for file in $files; do
    # 64: weights are read with aligned vector loads.
    cat <<END
extern const char reel_demo_${n}[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n.balign 64\n.global reel_demo_$n\n.hidden reel_demo_$n\n"
        "reel_demo_$n:\n.incbin \"$folder/$file\"\n.byte 0\n.popsection\n");
END
    rows="$rows    { \"$file\", reel_demo_$n, $(wc -c <"$folder/$file") },
"
    n=$((n + 1))
done
cat <<END
static const struct reel_memory_file files[$n] = {
$rows};
const struct reel_memory_file *demo_model_files(int *n_files) {
    *n_files = $n;
    return files;
}
END
