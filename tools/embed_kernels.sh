#!/bin/sh
# Writes the C file that carries every source in the folder $1 inside the program, with
# kernel_sources of src/cuda/compile/kernel_sources.h.
set -eu
folder=$1
n=0
echo '/* Made by tools/embed_kernels.sh. */'
echo '#include "cuda/compile/kernel_sources.h"'
echo 'const struct kernel_source kernel_sources[] = {'
for file in "$folder"/*.cu "$folder"/*.cuh "$folder"/*.h; do
    echo "{ \"${file##*/}\","
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' "$file"
    echo '},'
    n=$((n + 1))
done
echo '};'
echo "const int n_kernel_sources = $n;"
