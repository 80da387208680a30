#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Water, salt water and a capsid with one model through LAMMPS, and the teacher's dynamics of the same boxes beside them.
#
#   tests/bench/real_systems.sh [model.pt]          default: the bundled model; results: tables last, files in RESULTS
#
# a  216 waters repeated 2 x 2 x 2: NVT 20 ps at 300 K, NVE 10 ps; NVE again with a float64 network from the same state
# c  64 waters, and 58 with 3 KCl: distributions of the model (repeated 2 x 2 x 2) against the teacher's own (8 replicas)
# b  110,000 atoms of a capsid-like shell, 2,000 steps; as many atoms of water; both on two ranks with `balance atoms` and `edges`
#
# PARTS ("teacher water boxes capsid balance analysis"): what is done, from files of other parts that lie in WORK
# DEVICE (cuda), PYTHON, MPIEXEC, LMP: programs; RESULTS, WORK: folders; END: seconds after which nothing starts any more
# GPUS: a and b on the first, the teacher on the last, c on BOX_GPU (the last); two ranks on all of them (default: those
# of CUDA_VISIBLE_DEVICES, or 0); MADE32, MADE64: artifacts of the model that were made before
# EXPORT32, EXPORT64: options of tessera-export; TEACHER_SITE: folder with so3krates-torch and matscipy (none: no teacher)
# TEACHER_END: second at which the teacher stops; SHORTER: divides all numbers of steps; REPEAT ("2 2 2"); SUBUNIT
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
model=${1:-$root/examples/models/tessera-demo.pt}
python=${PYTHON:-python3} device=${DEVICE:-cuda} mpiexec=${MPIEXEC:-mpiexec} lmp=${LMP:-lmp}
results=${RESULTS:-$root/tests/bench/results/real_systems} work=${WORK:-$(mktemp -d)}
end=${END:-568} shorter=${SHORTER:-1} repeat=${REPEAT:-2 2 2} replicas=${REPLICAS:-8} teacher_end=${TEACHER_END:-415}
subunit=${SUBUNIT:-$root/examples/6-protein/trpzip2.pdb}
edge=12.43 # Å: 64 waters at 0.0333 / Å³
elements="H C N O S Cl K"
mkdir -p "$results" "$work"
export PYTHONPATH=$root/python:$root/export${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
export LAMMPS_PLUGIN_PATH=${LAMMPS_PLUGIN_PATH:-$root/python/tessera/lib}
started=$SECONDS
chosen=${GPUS:-${CUDA_VISIBLE_DEVICES:-0}}
read -ra gpus <<< "${chosen//,/ }"
first=${gpus[0]} last=${gpus[-1]}
box_gpu=${BOX_GPU:-$last}
known="teacher water boxes capsid balance analysis"
parts=" ${PARTS:-$known} "
for part in $parts; do
  [[ " $known " == *" $part "* ]] || { echo "PARTS: expected some of $known, found $part" >&2; exit 2; }
done

say() { echo "[$((SECONDS - started)) s] $*" | tee -a "$results/progress.log"; }
left() { echo $((end - SECONDS + started)); }
steps() { echo $(($1 / shorter > 0 ? $1 / shorter : 1)); }
tessera() { "$python" -m tessera.cli "$@"; }
is_part() { [[ $parts == *" $1 "* ]]; }
hours() { printf "%d:%02d:%02d" $(($1 / 3600)) $(($1 % 3600 / 60)) $(($1 % 60)); }

build_boxes() {
  tessera build water --edge $edge -o "$work/w.data" -o "$work/w.extxyz"
  tessera build kcl --edge $edge --molar 2.5 -o "$work/k.data" -o "$work/k.extxyz"
}

build_capsid() { # options of tessera build capsid
  tessera build capsid "$@" --types "${elements// /,}" -o "$work/capsid.data" > "$results/capsid.txt" 2>&1
  local atoms
  atoms=$(sed -nE 's/^atoms +([0-9]+).*/\1/p' "$results/capsid.txt")
  tessera build water --atoms "$atoms" -o "$work/water.data" > "$results/capsid_water.txt" 2>&1
}

teach() { # name, start structures
  local name=$1
  shift
  CUDA_VISIBLE_DEVICES=$last PYTHONPATH=$TEACHER_SITE:$PYTHONPATH OMP_NUM_THREADS=1 "$python" "$root/tests/bench/teacher_md.py" "$@" \
    --device "$device" --output "$work/teacher_$name.extxyz" --seconds $((teacher_end - SECONDS + started)) \
    --steps "$(steps 100000)" --every "$(steps 100)" ${TEACHER_OPTIONS:-} > "$results/teacher_$name.log" 2>&1
  say "teacher $name: $(tail -n 1 "$results/teacher_$name.log")"
}

run() { # name, ranks, GPUs; input from standard input
  local name=$1 ranks=$2 from=$SECONDS code=0 time_left
  time_left=$(left)
  cat > "$work/in.$name"
  (cd "$work" && CUDA_VISIBLE_DEVICES=$3 timeout -k 5 $((time_left > 5 ? time_left : 5)) "$mpiexec" -n "$ranks" "$lmp" -in "in.$name" \
    -log "log.$name" > "out.$name" 2>&1) || code=$?
  grep -vE "^ +[0-9]+ +[-0-9.e+]+ " "$work/out.$name" | tail -n 60 > "$results/out.$name"
  say "$name: code $code, $((SECONDS - from)) s; $(grep "^Loop time" "$work/out.$name" | tr '\n' ';')"
  [ $code -eq 0 ] || tail -n 4 "$work/out.$name"
}

header() { # data file, artifact, elements, options of the pair style, a line after read_data
  cat << EOF
units metal
atom_style atomic
read_data $1
${5:-}
timestep 0.0005
pair_style tessera skin 1.0 $4
pair_coeff * * $2 $3
thermo 20
thermo_style custom step temp pe etotal press
thermo_modify format float %.13g flush yes
EOF
}

water() {
  {
    header water216.data m32.pt2 "H O" "" "replicate $repeat"
    cat << EOF
minimize 1e-8 5e-2 40 80
velocity all create 300.0 4928459 mom yes rot yes dist gaussian
fix ensemble all nvt temp 300.0 300.0 0.1
timer timeout $(hours "${NVT_LIMIT:-150}") every 50
run $(steps 40000)
dump trajectory all custom $(steps 100) a.dump id element xu yu zu
dump_modify trajectory sort id element H O
unfix ensemble
write_data a.data nocoeff
fix ensemble all nve
timer timeout $(hours "${NVE_LIMIT:-80}") every 50
run $(steps 20000)
EOF
  } | run a 1 "$first"
  while kill -0 "$export64" 2> /dev/null; do sleep 1; done
  [ -e "$work/m64.pt2" ] || return
  {
    header a.data m64.pt2 "H O" ""
    cat << EOF
fix ensemble all nve
timer timeout $(hours "${NVE64_LIMIT:-60}") every 50
run $(steps 20000)
EOF
  } | run a64 1 "$first"
}

box() { # name, elements, steps
  {
    header "$1.data" m32.pt2 "$2" "" "replicate $repeat"
    cat << EOF
velocity all create 300.0 77 mom yes rot yes dist gaussian
fix bath all langevin 300.0 300.0 0.02 8123
fix motion all nve/limit 0.02
run $(steps 2000)
unfix bath
unfix motion
fix bath all langevin 300.0 300.0 0.2 8124
fix motion all nve
timer timeout $(hours "${BOX_LIMIT:-90}") every 50
run $(steps 6000)
dump trajectory all custom $(steps 100) c$1.dump id element xu yu zu
dump_modify trajectory sort id element $2
run $(steps "$3")
EOF
  } | run "c$1" 1 "$box_gpu"
}

large() { # name, data file, elements, steps, ranks, options of the pair style
  local gentle time_left gpu=$first
  [ "$5" -eq 1 ] || gpu=$(IFS=,; echo "${gpus[*]}")
  gentle=$(steps 300) time_left=$(left)
  [ "$gentle" -lt "$4" ] || gentle=$4
  {
    header "$2" m32.pt2 "$3" "${6:-}"
    cat << EOF
velocity all create 100.0 4928459 mom yes rot yes dist gaussian
fix bath all langevin 100.0 300.0 0.02 8123
fix motion all nve/limit 0.02
run $gentle
EOF
    [ "$gentle" -eq "$4" ] || cat << EOF
unfix bath
unfix motion
velocity all scale 300.0
fix bath all langevin 300.0 300.0 0.1 8124
fix motion all nve
dump trajectory all custom $(steps 400) $1.dump id element xu yu zu
dump_modify trajectory sort id element $3
timer timeout $(hours $((time_left > 70 ? time_left - 65 : 5))) every 20
run $(($4 - gentle))
EOF
  } | run "$1" "$5" "$gpu"
}

analyse() { # name, arguments of tessera analyze
  local name=$1 time_left
  shift
  time_left=$(left)
  timeout $((time_left + 15)) "$python" -m tessera.cli analyze "$@" > "$results/$name.txt" 2>&1
  say "analysed $name"
}

against_teacher() { # name
  local teacher=$work/teacher_$1.extxyz reference=()
  if [ -s "$teacher" ]; then
    analyse "teacher_$1" "$teacher" --reach 6 --json "$results/teacher_$1.json"
    [ -e "$results/teacher_$1.json" ] && reference=(--reference "$results/teacher_$1.json")
  fi
  analyse "c$1" "$work/c$1.dump" --frames ::2 --reach 6 "${reference[@]}" --log "$work/log.c$1" \
    --json "$results/c$1.json" --plot "$results/c$1.png"
}

build_starts() {
  build_boxes > "$results/boxes.txt" 2>&1
  for seed in $(seq "$replicas"); do
    tessera build kcl --edge $edge --molar 2.5 --seed "$seed" -o "$work/k$seed.extxyz" > /dev/null 2>&1
  done
}
export_model() { # bits, options; or a copy of one made before
  local made=MADE$1
  [ ! -e "$work/m$1.pt2" ] || return
  if [ -n "${!made:-}" ]; then
    cp "${!made}" "$work/m$1.pt2" || say "$made: expected an artifact, found no file ${!made}"
    return
  fi
  "$python" -m tessera_export.cli "$model" -o "$work/m$1.pt2" --device "$device" --dtype "float$1" ${2:-} > "$results/export$1.log" 2>&1
  say "export float$1: $(tail -n 1 "$results/export$1.log")"
}

teachers=()
if is_part teacher || is_part boxes; then build_starts; fi
if is_part teacher && [ -n "${TEACHER_SITE:-}" ]; then
  waters=() salts=()
  for seed in $(seq "$replicas"); do waters+=("$work/w.extxyz") salts+=("$work/k$seed.extxyz"); done
  teach w "${waters[@]}" & teachers+=($!)
  teach k "${salts[@]}" & teachers+=($!)
fi
building=
if [ ! -e "$work/capsid.data" ] && { is_part capsid || is_part balance; }; then build_capsid "$subunit" & building=$!; fi
if is_part water || is_part boxes || is_part capsid || is_part balance; then
  export_model 32 "${EXPORT32:-}" & export32=$!
  export64=$export32
  if is_part water; then export_model 64 "${EXPORT64:-}" & export64=$!; fi
  cp "$root/examples/2-water/water216.data" "$work/"
  wait $export32
  if [ ! -e "$work/m32.pt2" ]; then
    say "no float32 artifact: nothing to run; see $results/export32.log"
    exit 1
  fi
fi
lane=
if is_part water; then water & lane=$!; fi
if is_part boxes; then
  box w "H O" 24000
  box k "H O Cl K" 40000
fi
for job in $lane $building; do wait "$job"; done

# The capsid computes alone on its GPU, so that its times are its own.
if is_part capsid; then
  large b capsid.data "$elements" "$(steps 2000)" 1
  if [ "$(grep -c "^Loop time" "$work/out.b")" -lt 2 ] && [ "$(left)" -gt 60 ]; then
    say "the capsid did not run; a smaller one instead: 180 alanine dipeptides"
    build_capsid "$root/examples/7-capsid/alanine.pdb" --copies 180
    large b capsid.data "$elements" "$(steps 2000)" 1
  fi
  [ "$(left)" -gt 25 ] && large b_water water.data "H O" "$(steps 200)" 1
fi
for job in "${teachers[@]}"; do wait "$job"; done
if is_part balance; then
  for balance in atoms edges; do
    [ "$(left)" -gt 30 ] && large "b_$balance" capsid.data "$elements" "$(steps 100)" 2 "balance $balance"
    [ "$(left)" -gt 30 ] && large "b_water_$balance" water.data "H O" "$(steps 100)" 2 "balance $balance"
  done
  {
    echo "| system | balance | edges of a rank, least and most | exchange wait, ms | step, ms |"
    echo "|---|---|---|---|---|"
    for balance in atoms edges; do
      for name in capsid water; do
        out=$work/out.b_$balance
        [ $name = capsid ] || out=$work/out.b_water_$balance
        awk -v row="| $name | $balance" '/Tessera: edges/ {e = $3 ", " $5} /Tessera: exchange wait/ {w = $8} /Tessera: total ms/ {t = $7}
          END {print row " | " e " | " w " | " t " |"}' "$out"
      done
    done
  } > "$results/balance.md"
fi
if is_part analysis; then
  [ -e "$work/a.dump" ] && analyse a "$work/a.dump" --frames ::4 --log "$work/log.a" --json "$results/a.json" --plot "$results/a.png" &
  [ -e "$work/log.a64" ] && analyse a64 --log "$work/log.a64" &
  [ -e "$work/cw.dump" ] && against_teacher w &
  [ -e "$work/ck.dump" ] && against_teacher k &
  [ -e "$work/b.dump" ] && analyse b "$work/b.dump" --reach 3.2 --log "$work/log.b" &
fi
wait
for name in a a64 b b_water b_atoms b_edges b_water_atoms b_water_edges; do [ -e "$work/log.$name" ] && gzip -c "$work/log.$name" > "$results/log.$name.gz"; done
for name in w k; do [ -e "$work/teacher_$name.extxyz" ] && gzip -c "$work/teacher_$name.extxyz" > "$results/teacher_$name.extxyz.gz"; done
cat "$results/progress.log"
for name in a a64 cw ck teacher_w teacher_k b capsid; do
  echo "== $name"
  [ -e "$results/$name.txt" ] && tail -n 40 "$results/$name.txt"
done
[ -e "$results/balance.md" ] && cat "$results/balance.md"
say end
