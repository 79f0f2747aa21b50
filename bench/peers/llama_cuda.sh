#!/bin/bash
# Builds llama.cpp's llama-bench with its CUDA backend, for one GPU generation, from the source
# distribution of llama-cpp-python, and puts it with its gguf package into FOLDER, to be copied to a
# machine with that GPU, which has libcublas and libcudart. Takes an hour on two cores.
#
#   pip download --no-deps --no-binary :all: llama-cpp-python
#   bench/peers/llama_cuda.sh llama_cpp_python-*.tar.gz build/gpu-llama [90]
set -euo pipefail
sdist=$1 folder=$2 compute=${3:-90}
work=${WORK:-$folder-work}
mkdir -p "$work/source" "$folder"
if [ ! -f "$work/source/CMakeLists.txt" ]; then
    tar -xf "$sdist" -C "$work/source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*' \
        --exclude '*/llama.cpp/models' --exclude '*/llama.cpp/docs' --exclude '*/llama.cpp/build'
fi
cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$compute-real" -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_COMPRESSION_MODE=size \
    -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF >/dev/null
cmake --build "$work/build" --target llama-bench -j"$(nproc)" >/dev/null
strip -o "$work/llama-bench" "$work/build/bin/llama-bench"
xz -T0 -c "$work/llama-bench" >"$folder/llama-bench.xz"
rm -rf "$folder/gguf"
cp -r "$work/source/gguf-py/gguf" "$folder/gguf"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
du -sh "$folder"
