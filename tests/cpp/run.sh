#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds and runs the C++ tests of floors 0-5 (no torch): run.sh BUILD_FOLDER BIN_FOLDER_OF_THE_PYTHON_ENVIRONMENT
set -eu
build=$1
bin=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$("$bin/python" -c 'import sys; print(sys.prefix)')

# Debian's libgtest-dev if it is there, else GoogleTest's sources from PyPI.
if [ ! -e /usr/include/gtest/gtest.h ] && [ ! -e "$prefix/src/gtest_vendor/src/gtest-all.cc" ]; then
  "$bin/python" -m pip install --quiet ros-gtest-vendor
fi
faiss=OFF
if [ -e /usr/include/faiss/IndexFlat.h ]; then faiss=ON; fi
PATH="$bin:$PATH" cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DTESSERA_TORCH=OFF -DTESSERA_TESTS=ON \
  -DTESSERA_FAISS=$faiss -DTESSERA_MPI_ROOT="$prefix"
PATH="$bin:$PATH" cmake --build "$build" --parallel "${MAX_JOBS:-2}"
PATH="$bin:$PATH" ctest --test-dir "$build" --output-on-failure
