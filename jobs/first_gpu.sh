#!/usr/bin/env bash
# What perf/RESULTS.md lists as not run for want of a GPU: packs it into one file, and runs it on a
# machine with a GPU.
usage() {
  cat << 'TEXT'
usage: jobs/first_gpu.sh run OUT [--minutes N] [--only WORD] [--steps-from FILE]
       jobs/first_gpu.sh bundle FILE.tar.gz [--build DIR] [--text FILE] [--cuda] [--llm-c FILE]
       jobs/first_gpu.sh steps

  run OUT            runs the steps, the most telling first, and writes the folder OUT: what each
                     step said, and summary.md and summary.json, which are complete after each step
    --minutes N      stop after N minutes in all; default 25
    --only WORD      only the steps whose name holds WORD
    --steps-from F   the steps of a file instead, in the form that `steps` prints
  bundle FILE        packs programs, their libraries, scripts and data, for a machine where nothing
                     is installed but a GPU's driver and the CUDA libraries
    --build DIR      where the programs were built; default: build/release
    --text FILE      what is trained on; default: this repository's own pages and sources
    --cuda           packs the CUDA libraries too (about 1 GB)
    --llm-c FILE     packs llm.c's train_gpt2cu, as perf/llm_c.sh builds it
  steps              prints the steps: NAME :: SECONDS :: LIMIT :: NEEDS :: COMMAND
                     (begins where SECONDS are left of the whole time; is ended after LIMIT seconds)
  --help             this text

Exit status of run: 0 if every step that ran passed, 1 if one did not, 2 for a wrong option,
3 where no data could be made, 71 where there is no GPU (nothing is run then).
TEXT
}
set -euo pipefail
unset CDPATH

self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
home=$(cd "$(dirname "$self")/.." && pwd)  # the repository, or the unpacked bundle
# Tests of operations for compute-sanitizer: those of our kernels. synccheck does not keep up with the
# barriers of cuDNN's kernels, which compute attention in 16 bits and most convolutions.
export OWN_KERNELS='Types/*-Types/Attention.*16:Types/Convolution.I*:Types/Convolution.Gradients*'
programs=(ops_gpu_test cuda_gpu_test nccl_gpu_test comm_gpu_test checkpoint_difference)

fail() {
  local status=$1
  shift
  echo "first_gpu.sh: $*" >&2
  exit "$status"
}

# A step begins where at least SECONDS are left of the whole time, and is ended after LIMIT. NEEDS
# is "-", or what must be here: python3, torch, transformers, compute-sanitizer, gpus (at least two).
# Commands find the programs in PATH, the data in $DATA, scripts in $HOME_OF_BUNDLE, and run in a
# folder of their own.
steps() {
  cat << 'TEXT'
facts :: 5 :: 60 :: - :: "$FIRST_GPU" facts
doctor :: 5 :: 60 :: - :: trireme version; trireme doctor
losses-fp32 :: 20 :: 120 :: - :: "$FIRST_GPU" losses fp32 1e-3
ops-tests :: 60 :: 300 :: - :: ops_gpu_test --gtest_brief=1
cuda-tests :: 5 :: 60 :: - :: cuda_gpu_test --gtest_brief=1
nccl-tests :: 10 :: 90 :: - :: nccl_gpu_test --gtest_brief=1
nccl-tuner :: 10 :: 90 :: - :: "$FIRST_GPU" tuner 1 nccl_gpu_test --gtest_brief=1
bench-step :: 20 :: 180 :: - :: trireme bench step --preset gpt2-124m --batch 64 --context 1024 --dtype bf16 --device cuda --repeats 20 --json step.json
bench-graphs :: 20 :: 180 :: - :: trireme bench step --preset gpt2-124m --batch 64 --context 1024 --dtype bf16 --device cuda --graphs true --repeats 20 --json step.json
bench-step-any-order :: 15 :: 180 :: - :: trireme bench step --preset gpt2-124m --batch 64 --context 1024 --dtype bf16 --device cuda --graphs true --any-order true --repeats 20 --json step.json
bench-step-logits :: 15 :: 180 :: - :: trireme bench step --preset gpt2-124m --batch 64 --context 1024 --dtype bf16 --device cuda --graphs true --logits bf16 --repeats 20 --json step.json
bench-kernels :: 10 :: 180 :: - :: trireme bench step --preset gpt2-124m --batch 64 --context 1024 --dtype bf16 --device cuda --graphs true --kernels true --repeats 5 --json step.json
bench-kernels-pictures :: 10 :: 180 :: - :: trireme bench step --preset mobilenet_v2 --batch 256 --dtype bf16 --device cuda --graphs true --kernels true --repeats 5 --json step.json
bench-products :: 9 :: 120 :: - :: printf '[model]\npreset = gpt2-124m\ncontext = 1024\n[batch]\nglobal = 64\nmicro = 64\n[run]\nprecision = bf16\ndevice = cuda\n' > products.ini; trireme bench products --config products.ini --write products.json
bench-ops :: 40 :: 180 :: - :: trireme bench ops --device cuda --dtype bf16 --batch 64 --context 1024
torch :: 120 :: 300 :: torch :: TRIREME=trireme TORCH_PYTHON=python3 "$HOME_OF_BUNDLE/perf/train_step.sh" --device cuda
llm-c :: 15 :: 120 :: train_gpt2cu :: "$HOME_OF_BUNDLE/perf/llm_c.sh" run
torch-pictures :: 90 :: 400 :: torch :: TRIREME=trireme TORCH_PYTHON=python3 "$HOME_OF_BUNDLE/perf/train_step.sh" --device cuda --pictures
torch-masked :: 60 :: 300 :: torch :: TRIREME=trireme TORCH_PYTHON=python3 "$HOME_OF_BUNDLE/perf/train_step.sh" --device cuda --masked
torch-decoders :: 60 :: 400 :: torch,transformers :: TRIREME=trireme TORCH_PYTHON=python3 "$HOME_OF_BUNDLE/perf/train_step.sh" --device cuda --decoders
train-tests :: 190 :: 600 :: python3 :: python3 "$HOME_OF_BUNDLE/tests/mpi/device_train_test.py" real "$(command -v trireme)" "$(command -v checkpoint_difference)" mpiexec
losses-bf16 :: 15 :: 180 :: - :: "$FIRST_GPU" losses bf16 1e-2 && mkdir fp8 && cd fp8 && "$FIRST_GPU" losses fp8 2e-2
losses-tf32 :: 15 :: 120 :: - :: "$FIRST_GPU" losses tf32 1e-2
losses-fp16 :: 15 :: 120 :: - :: "$FIRST_GPU" losses fp16 1e-2
losses-graphs :: 15 :: 120 :: - :: "$FIRST_GPU" losses fp32 1e-3 --cuda.graphs true
comm-tests :: 40 :: 240 :: - :: for ranks in 1 2 4; do mpiexec -n $ranks comm_gpu_test --gtest_brief=1 || exit; done
bench-comm-mpi :: 30 :: 120 :: - :: mpiexec -n 2 trireme bench comm --device cuda --backend mpi --from 1K --to 64M
bench-comm-nccl :: 30 :: 120 :: gpus :: mpiexec -n "$GPUS" trireme bench comm --device cuda --backend nccl --from 1K --to 1G
nccl-tuner-gpus :: 30 :: 120 :: gpus :: "$FIRST_GPU" tuner "$GPUS" mpiexec -n "$GPUS" trireme bench comm --device cuda --backend nccl --from 1K --to 64M
bench-ops-cold :: 20 :: 180 :: - :: trireme bench ops --device cuda --dtype bf16 --batch 64 --context 1024 --graphs true --cold true
bench-ops-llama :: 30 :: 180 :: - :: trireme bench ops --device cuda --dtype bf16 --batch 64 --context 1024 --preset llama-160m
bench-step-pictures :: 40 :: 180 :: - :: trireme bench step --preset mobilenet_v2 --batch 256 --dtype bf16 --device cuda --graphs true --repeats 20 --json step.json
bench-step-masked :: 40 :: 180 :: - :: trireme bench step --preset bert-base --batch 64 --context 512 --dtype bf16 --device cuda --graphs true --repeats 20 --json step.json
bench-step-qwen :: 35 :: 300 :: - :: for size in 0.5b:32 1.5b:16 3b:8; do for dtype in bf16 fp8; do trireme bench step --preset qwen2.5-${size%:*} --batch ${size#*:} --context 1024 --dtype $dtype --device cuda --graphs true --repeats 5 || exit; done; done
bench-micro :: 60 :: 240 :: - :: for micro in 1 2 4 8 16 32 64; do trireme bench step --preset gpt2-124m --batch 64 --micro $micro --context 1024 --dtype bf16 --device cuda --repeats 5 || exit; done
bench-ops-pictures :: 20 :: 180 :: - :: trireme bench ops --device cuda --dtype bf16 --batch 256 --preset mobilenet_v2
scale :: 30 :: 120 :: - :: trireme scale --data.train "$DATA/train.h5" --output study --nodes 1 --repeats 2 --mode strong --launcher mpiexec --steps 20 --model.preset test-gpt --batch.global 8 --batch.micro 8 --run.device cuda
memcheck :: 60 :: 300 :: compute-sanitizer :: compute-sanitizer --tool memcheck --error-exitcode 9 "$(program_file ops_gpu_test)" --gtest_brief=1 --gtest_filter="$OWN_KERNELS"
racecheck :: 60 :: 300 :: compute-sanitizer :: compute-sanitizer --tool racecheck --error-exitcode 9 "$(program_file ops_gpu_test)" --gtest_brief=1 --gtest_filter="$OWN_KERNELS"
initcheck :: 60 :: 300 :: compute-sanitizer :: compute-sanitizer --tool initcheck --error-exitcode 9 "$(program_file ops_gpu_test)" --gtest_brief=1 --gtest_filter="$OWN_KERNELS"
synccheck :: 60 :: 300 :: compute-sanitizer :: compute-sanitizer --tool synccheck --error-exitcode 9 "$(program_file ops_gpu_test)" --gtest_brief=1 --gtest_filter="$OWN_KERNELS"
TEXT
}

# ---- what steps call -------------------------------------------------------------------------------

facts() {
  date -u
  uname -a
  ldd --version 2>&1 | head -n 1 || true
  grep -m 1 'model name' /proc/cpuinfo || true
  nproc
  free -h 2> /dev/null || head -n 3 /proc/meminfo
  nvidia-smi || echo "there is no nvidia-smi"
  nvidia-smi -q -d MEMORY,CLOCK,ECC,POWER,PERFORMANCE 2> /dev/null || true
  echo "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
}

# The losses of one run, a line "STEP LOSS" each.
losses_in() {
  sed -n 's/.*"step":\([0-9]*\).*"loss":\([-+0-9.einfa]*\).*/\1 \2/p' "$1/metrics.jsonl"
}

# Trains the same 20 steps on the CPU and on the GPU; fails where a loss differs by more than
# TOLERANCE of it.
losses() {
  local precision=$1 tolerance=$2 on_cpu=$1 device
  shift 2
  [[ $precision == tf32 ]] && on_cpu=fp32  # which GPUs alone have
  for device in cpu cuda; do
    local given=("$@") type=$precision
    [[ $device == cpu ]] && given=() type=$on_cpu
    echo "== $device, $type ${given[*]}"
    trireme train --data.train "$DATA/train.h5" --data.validation "$DATA/validation.h5" \
      --run.folder "$device" --run.steps 20 --run.precision "$type" --run.device "$device" \
      --model.layers 4 --model.width 256 --model.heads 4 --model.context 128 --model.dropout 0.1 \
      --batch.global 16 --batch.micro 8 --optim.lr 1e-3 --optim.clip 1 --schedule.warmup 5 \
      --eval.every 10 --eval.batches 2 --checkpoint.every 10 --log.every 1 "${given[@]}"
  done
  echo "== step, loss on the CPU, loss on the GPU, difference"
  join <(losses_in cpu | sort -k 1b,1) <(losses_in cuda | sort -k 1b,1) | sort -n |
    awk -v tolerance="$tolerance" '
      # Some versions of awk take "null" for 0, and 0/0 for a small number.
      $2 !~ /^-?[0-9.]+/ || $3 !~ /^-?[0-9.]+/ { print; bad++; n++; next }
      { d = ($3 - $2) / $2; if (d < 0) d = -d; print $1, $2, $3, d; if (!(d <= tolerance)) bad++; n++ }
      d > most { most = d }
      END { if (n == 0) { print "no losses"; exit 1 }
            printf "%d steps, largest difference %.2g, allowed %s\n", n, most, tolerance
            exit bad > 0 }'
}

# Runs a command with NCCL's tuner, and a table for communicators of RANKS ranks on one node. Fails
# unless NCCL has loaded the plugin, and the plugin has found the table.
tuner() {
  local ranks=$1 plugin=$home/lib/trireme/libtrireme_tuner.so
  shift
  [[ -e $plugin ]] || plugin=$home/build/release/lib/trireme/libtrireme_tuner.so
  printf '%s\n' 'trireme-nccl-table 1' "communicator $ranks 1" 'compared tree ring pat nvls nvls_tree' \
    'all_reduce any ring/ll ring/simple' > table
  NCCL_TUNER_PLUGIN=$plugin TRIREME_NCCL_TABLE=$PWD/table NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING \
    "$@" | tee said
  echo "== what NCCL says of the tuner"
  grep -m 1 'Using Trireme' said && grep -m 1 "Trireme tuner: a table for $ranks ranks" said
}

# The program itself, where PATH has what starts it: for tools that look into it.
program_file() {
  local file
  file=$(command -v "$1")
  [[ -x $home/libexec/trireme/$1 ]] && file=$home/libexec/trireme/$1
  echo "$file"
}

# ---- run -------------------------------------------------------------------------------------------

read_steps() {
  local line rest
  names=() expected=() limits=() needs=() commands=() results=() seconds=() notes=()
  while IFS= read -r line || [[ -n $line ]]; do
    [[ -z $line || $line == '#'* ]] && continue
    [[ $line == *' :: '*' :: '*' :: '*' :: '* ]] || fail 2 "no step: $line"
    rest=$line
    local fields=() i
    for i in 1 2 3 4; do
      fields+=("${rest%% :: *}")
      rest=${rest#* :: }
    done
    [[ ${fields[0]} =~ ^[a-z0-9-]+$ && ${fields[1]} =~ ^[0-9]+$ && ${fields[2]} =~ ^[1-9][0-9]*$ ]] ||
      fail 2 "no step: $line"
    [[ ${fields[0]} == *"$only"* ]] || continue
    names+=("${fields[0]}") expected+=("${fields[1]}") limits+=("${fields[2]}") needs+=("${fields[3]}")
    commands+=("$rest") results+=("waiting") seconds+=("0") notes+=("")
  done
}

json_text() {
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/\\t}
  printf '"%s"' "$(LC_ALL=C tr -d '\000-\037\177' <<< "$text")"
}

folder_of() { printf '%02d-%s' $(($1 + 1)) "${names[$1]}"; }

write_json() {
  local i separator=''
  printf '{"host": %s, "gpu": %s, "started": "%s", "minutes": %d, "seconds": %d, "state": "%s", "steps": [' \
    "$(json_text "$(uname -n)")" "$(json_text "$gpu")" "$started" "$minutes" "$((SECONDS - begun))" "$1"
  for i in "${!names[@]}"; do
    printf '%s\n  {"name": "%s", "folder": "%s", "result": %s, "seconds": %d, "note": %s, "command": %s}' \
      "$separator" "${names[i]}" "$(folder_of "$i")" "$(json_text "${results[i]}")" "${seconds[i]}" \
      "$(json_text "${notes[i]}")" "$(json_text "${commands[i]}")"
    separator=,
  done
  printf '\n]}\n'
}

write_markdown() {
  local i
  printf '# %s on %s\n\nStarted %s, %d s of %d min; %s.\n\n' "$gpu" "$(uname -n)" "$started" \
    "$((SECONDS - begun))" "$minutes" "$1"
  printf '| Step | Result | Seconds | Last line |\n|---|---|---|---|\n'
  for i in "${!names[@]}"; do
    printf '| [%s](%s) | %s | %d | %s |\n' "${names[i]}" "$(folder_of "$i")" "${results[i]}" \
      "${seconds[i]}" "${notes[i]//|/\\|}"
  done
}

# Each file is whole at any time.
write_summary() {
  # A full disk does not keep the other steps from being run.
  { write_json "$1" > "$out/.summary.json" && mv "$out/.summary.json" "$out/summary.json" &&
    write_markdown "$1" > "$out/.summary.md" && mv "$out/.summary.md" "$out/summary.md"; } ||
    echo "first_gpu.sh: the summary in $out could not be written" >&2
}

last_line() {
  local line
  line=$({ grep -ahv '^[[:space:]]*$' "$@" || true; } | tail -n 1 | LC_ALL=C tr -dc '\040-\176')
  echo "${line:0:160}"
}

# Why a step cannot run here; nothing where it can.
what_lacks() {
  local need
  for need in ${1//,/ }; do
    case $need in
      -) ;;
      gpus) [[ $GPUS -ge 2 ]] || echo "it needs two GPUs" ;;
      torch) timeout 60 python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' > /dev/null 2>&1 ||
        echo "python3 has no PyTorch with CUDA" ;;
      transformers) timeout 60 python3 -c 'import transformers' > /dev/null 2>&1 || echo "python3 has no transformers" ;;
      *) command -v "$need" > /dev/null || echo "there is no $need" ;;
    esac
  done
}

# Ends the processes of a step that outlive it, as ranks do whose launcher was killed: they would
# share the GPU with the steps that follow.
end_leftovers() {
  local file
  for file in $(grep -lszx "FIRST_GPU_STEP=$1" /proc/[0-9]*/environ || true); do
    file=${file#/proc/}
    kill -9 "${file%/environ}" 2> /dev/null || true
  done
}

# Runs step $1 for at most $2 seconds.
run_step() {
  local i=$1 limit=$2 folder status=0 begin=$SECONDS
  folder=$out/$(folder_of "$i")
  mkdir -p "$folder"
  echo "${commands[i]}" > "$folder/command"
  # It runs in the background, so that a signal to this script is seen at once.
  (cd "$folder" && FIRST_GPU_STEP=$$-$i exec timeout -k 10 "$limit" bash -c "${commands[i]}") \
    < /dev/null > "$folder/stdout" 2> "$folder/stderr" &
  child=$!
  wait "$child" || status=$?
  child=
  end_leftovers "$$-$i"
  seconds[i]=$((SECONDS - begin))
  echo "$status" > "$folder/status"
  echo "${seconds[i]}" > "$folder/seconds"
  notes[i]=$(last_line "$folder/stdout" "$folder/stderr")
  local skipped
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}[.,].*/\1/p' "$folder/stdout" | awk '{ n += $1 } END { print n + 0 }')
  case $status in
    0) results[i]="passed" ;;
    77) results[i]="skipped" ;;
    124) results[i]="ended after $limit s" ;;
    137) [[ ${seconds[i]} -ge $limit ]] && results[i]="ended after $limit s" || results[i]="killed, status 137" ;;
    *) results[i]="failed, status $status" ;;
  esac
  [[ $status -eq 0 && $skipped -gt 0 ]] && results[i]="passed, $skipped skipped"
  [[ $status -eq 0 || $status -eq 77 ]] || bad=1
}

# CUDA's libraries beside PyTorch, if the loader does not find all of them by itself.
find_cuda_libraries() {
  local folders
  trireme version 2>&1 | sed -n '/^on GPUs here/,$p' | grep -qE ' no: | too old' || return 0
  command -v python3 > /dev/null || return 0
  folders=$(timeout 60 python3 - 2> /dev/null << 'TEXT' || true
import glob, os, site, sys
roots = {*site.getsitepackages(), site.getusersitepackages(), *sys.path}
found = sorted({f for r in roots for f in glob.glob(os.path.join(r, "nvidia", "*", "lib"))})
print(":".join(found))
TEXT
  )
  [[ -z $folders ]] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folders"
}

# is_there FILE: what cannot be looked at is not absent.
is_there() {
  local fault
  fault=$(LC_ALL=C && : 2>&1 < "$1") && return  # without ls, which a bare machine may lack
  [[ $fault == *": No such file or directory" ]] || fail 5 "$1 cannot be looked at: ${fault##*: }"
  return 1
}

prepare_data() {
  DATA=$home/data
  if ! is_there "$DATA/train.h5"; then
    DATA=$out/data
    is_there "$DATA/train.h5" || make_data "$DATA" ""
  fi
  export DATA
}

# make_data FOLDER TEXT: shards of a text; without one, of the pages and sources here.
make_data() {
  local text=$2
  mkdir -p "$1"
  if [[ -z $text ]]; then
    text=$1/text
    find "$home" -path "$home/build" -prune -o \( -name '*.md' -o -name '*.cc' -o -name '*.h' \) -type f -print0 |
      sort -z | xargs -0 cat > "$text"
  fi
  trireme prepare "$text" --output "$1" --tokenizer bpe:1024 --validation tail:100000 \
    > "$1/log" 2>&1 || fail 3 "trireme prepare: $(tail -n 1 "$1/log")"
}

run() {
  [[ $# -ge 1 && $1 != -* ]] || fail 2 "run OUT: name the folder for the results; --help shows all"
  out=$1 minutes=25 only='' steps_file=''
  shift
  while [[ $# -gt 0 ]]; do
    case $1 in
      --minutes | --only | --steps-from) [[ $# -ge 2 ]] || fail 2 "$1 needs a value" ;;&
      --minutes)
        [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] || fail 2 "--minutes is '$2'; it must be a number of minutes"
        minutes=$2
        ;;
      --only) only=$2 ;;
      --steps-from)
        [[ -r $2 ]] || fail 2 "--steps-from: there is no $2"
        steps_file=$2
        ;;
      *) fail 2 "run has no option '$1'; --help shows all" ;;
    esac
    shift 2
  done
  ! is_there "$out/summary.json" || fail 2 "$out holds results already: name another folder"
  begun=$SECONDS started=$(date -u +%Y-%m-%dT%H:%M:%SZ) bad=0 child=''
  if [[ -n $steps_file ]]; then read_steps < "$steps_file"; else read_steps < <(steps); fi
  [[ ${#names[@]} -gt 0 ]] || fail 2 "no step is called '$only'; \`first_gpu.sh steps\` prints all"
  find_programs
  find_cuda_libraries
  local said
  said=$(timeout 60 trireme version 2>&1) || fail 71 "trireme version does not run here: $(tail -n 1 <<< "$said")"
  gpu=$(sed -n 's/^cuda:0  *//p' <<< "$said")
  GPUS=$(grep -c '^cuda:[0-9]' <<< "$said" || true)
  export GPUS FIRST_GPU=$self HOME_OF_BUNDLE=$home
  [[ -n $gpu ]] || fail 71 "no GPU here ($(sed -n 's/^GPUs  *//p' <<< "$said")): nothing was run"
  mkdir -p "$out" || fail 2 "$out cannot be made"
  out=$(cd "$out" && pwd)
  echo "$said" > "$out/version"
  prepare_data
  export -f program_file
  export home
  trap 'cut' TERM INT HUP
  local i left lacks
  for i in "${!names[@]}"; do
    left=$((minutes * 60 - (SECONDS - begun)))
    lacks=$(what_lacks "${needs[i]}")
    if [[ -n $lacks ]]; then
      results[i]="not run: $lacks"
    elif [[ $left -lt ${expected[i]} || $left -lt 1 ]]; then
      results[i]="not run: time"
    else
      results[i]="running"
      write_summary running
      run_step "$i" $((left < limits[i] ? left : limits[i]))
    fi
    printf '%-24s %-24s %4d s  %s\n' "${names[i]}" "${results[i]}" "${seconds[i]}" "${notes[i]}"
    write_summary running
  done
  write_summary "done"
  echo "$out/summary.md"
  exit "$bad"
}

cut() {
  trap '' TERM INT HUP
  if [[ -n $child ]]; then
    kill "$child" 2> /dev/null || true
    wait "$child" || true
  fi
  local i
  for i in "${!names[@]}"; do
    if [[ ${results[i]} == running ]]; then
      end_leftovers "$$-$i"
      results[i]="cut"
    fi
    [[ ${results[i]} != waiting ]] || results[i]="not run: cut"
  done
  write_summary cut
  fail 1 "cut by a signal; what is done is in $out/summary.md"
}

# Puts the programs into PATH: of the bundle, or of a build.
find_programs() {
  if [[ -d $home/libexec/trireme ]]; then
    PATH=$home/bin:$PATH
  elif [[ -x $home/build/release/bin/trireme ]]; then
    PATH=$home/build/release/bin:$home/build/release/tests:$PATH
  fi
  command -v trireme > /dev/null || fail 2 "there is no program trireme: build it, or use a bundle"
  export PATH
}

# ---- bundle ----------------------------------------------------------------------------------------

bundle() {
  [[ $# -ge 1 && $1 != -* ]] || fail 2 "bundle FILE: name the file to write; --help shows all"
  local file=$1 build=$home/build/release text='' cuda='' llm_c=''
  [[ $file == *.tar.gz ]] || fail 2 "bundle $file: the name must end with .tar.gz"
  shift
  while [[ $# -gt 0 ]]; do
    case $1 in
      --cuda)
        cuda=1
        shift
        continue
        ;;
      --build | --text | --llm-c) [[ $# -ge 2 ]] || fail 2 "$1 needs a value" ;;&
      --build) build=$(cd "$2" && pwd) || fail 2 "--build: there is no $2" ;;
      --text)
        [[ -r $2 ]] || fail 3 "--text: there is no $2"
        text=$2
        ;;
      --llm-c)
        [[ -x $2 ]] || fail 2 "--llm-c: there is no program $2; perf/llm_c.sh build makes it"
        llm_c=$2
        ;;
      *) fail 2 "bundle has no option '$1'; --help shows all" ;;
    esac
    shift 2
  done
  [[ -e $build/CPackConfig.cmake ]] || fail 2 "$build is no build of Trireme: run cmake --preset release"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cmake --build "$build" --target installable trireme_launcher "${programs[@]}" > "$work/log" 2>&1 ||
    fail 2 "the build failed: $(grep -m 1 'error' "$work/log" || tail -n 1 "$work/log")"
  cpack --config "$build/CPackConfig.cmake" -G TGZ -B "$work/pack" > "$work/log" 2>&1 ||
    fail 2 "cpack: $(grep -m 1 -i error "$work/log" || tail -n 1 "$work/log")"
  mkdir "$work/stage"
  tar -xzf "$work"/pack/*.tar.gz -C "$work/stage"
  local top=$work/stage/trireme_first_gpu
  mv "$work"/stage/trireme-* "$top"
  cmake -D STAGE="$top" -D BUILD="$build" -D "PROGRAMS=$(IFS=';' && echo "${programs[*]}")" \
    -P "$home/modules/archive/add_programs.cmake" || fail 2 "the test programs cannot be added"
  if [[ -n $cuda ]]; then
    rm -f "$build"/trireme-*-cuda.tar.gz  # of another version
    cmake --build "$build" --target package_cuda > "$work/log" 2>&1 || fail 2 "package_cuda: $(tail -n 1 "$work/log")"
    tar -xzf "$build"/trireme-*-cuda.tar.gz -C "$top" --strip-components 1
  fi
  mkdir -p "$top"/{jobs,perf,tests/mpi,tests/support}
  cp "$self" "$home/jobs/first_gpus.sh" "$top/jobs/"
  cp "$home"/perf/{train_step,llm_c}.sh "$home"/perf/*_step_torch.py "$top/perf/"
  [[ -z $llm_c ]] || cp "$llm_c" "$top/bin/train_gpt2cu"
  cp "$home/tests/mpi/device_train_test.py" "$top/tests/mpi/"
  cp "$home"/tests/support/{cli_testing,torch_pictures}.py "$top/tests/support/"
  PATH=$top/bin:$PATH
  make_data "$top/data" "$text"
  rm -f "$top/data/text" "$top/data/log"
  rm -rf "$top/share/man" "$top/share/bash-completion" "$top/share/zsh"
  tar -C "$work/stage" -c trireme_first_gpu | gzip > "$file.partial"
  mv "$file.partial" "$file"
  echo "$file: $(($(stat -c %s "$file") / 1048576)) MiB. There: tar -xzf ${file##*/} && trireme_first_gpu/jobs/first_gpu.sh run OUT"
}

command=${1:---help}
[[ $# -eq 0 ]] || shift
case $command in
  run) run "$@" ;;
  bundle) bundle "$@" ;;
  steps | facts) "$command" ;;
  losses | tuner) "$command" "$@" ;;
  --help | -h) usage ;;
  *) fail 2 "no command is called '$command'; --help shows all" ;;
esac
