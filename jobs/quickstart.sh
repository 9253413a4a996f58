#!/usr/bin/env bash
# Builds Trireme, prepares a real corpus, trains a small GPT on several MPI ranks of this machine,
# evaluates it and lets it write.
usage() {
  cat << 'TEXT'
usage: jobs/quickstart.sh [option...]

  --short        a few steps on 2 MB of text: shows that everything works
  --text PATH    a text file or a folder of text files, instead of the dictionary
                 (the GNU Collaborative International Dictionary of English)
  --steps N      training steps; default: what jobs/quickstart.ini says, 20 with --short
  --folder DIR   where corpus, data and run are kept; default: runs/quickstart,
                 runs/quickstart_short with --short
  --ranks N      MPI ranks; default 4, as two replicas of the model, each split over two ranks
  --strict       compiler warnings are errors
  --unity        compile many files as one: faster, where all is compiled anyway
  --help         this text

What is there already is not made again: a second call with the same folder goes on where the
first one stopped. The exit status is that of the first command that failed; 2 for a wrong option
or missing packages, 3 for a corpus that cannot be had.
TEXT
}
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
phases=()
phase=options
phase_begin=0

fail() {
  local status=$1
  shift
  echo "quickstart: $*" >&2
  exit "$status"
}
# shellcheck source=/dev/null
. "$root/jobs/there.sh"

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

end_phase() {
  phases+=("$phase $(($(now_ms) - phase_begin))")
}

begin_phase() {
  [[ ${#phases[@]} -eq 0 && $phase == options ]] || end_phase
  phase=$1
  shift
  phase_begin=$(now_ms)
  printf '\n== %s: %s\n' "$phase" "$*"
}

print_phases() {
  local entry total=0
  printf '\nseconds per phase\n'
  for entry in "${phases[@]}"; do
    printf '  %-10s %4d.%d\n' "${entry% *}" $((${entry#* } / 1000)) $((${entry#* } % 1000 / 100))
    total=$((total + ${entry#* }))
  done
  printf '  %-10s %4d.%d\n' total $((total / 1000)) $((total % 1000 / 100))
}

positive() {
  [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail 2 "$1 must be a number of at least 1, not '$2'"
}

parse_options() {
  short=false text='' steps='' folder='' ranks=4
  build_options=(-DTRIREME_STRICT=OFF)
  while [[ $# -gt 0 ]]; do
    case $1 in
      --short) short=true ;;
      --strict) build_options[0]=-DTRIREME_STRICT=ON ;;
      --unity) build_options+=(-DTRIREME_UNITY=16) ;;
      --help)
        usage
        exit 0
        ;;
      --text | --steps | --folder | --ranks)
        [[ -n ${2-} ]] || fail 2 "$1 needs a value; --help shows all options"
        declare -g "${1#--}=$2"
        shift
        ;;
      *) fail 2 "no option is called '$1'; --help shows all of them" ;;
    esac
    shift
  done
  positive --ranks "$ranks"
  [[ -z $steps ]] || positive --steps "$steps"
  if [[ -n $text ]]; then
    [[ -r $text ]] || fail 3 "cannot read the text '$text'"
    text=$(realpath "$text")
  fi
  if $short; then
    folder=${folder:-$root/runs/quickstart_short}
    steps=${steps:-20}
  fi
  folder=$(realpath -m "${folder:-$root/runs/quickstart}")
}

# If no NVIDIA GPU is visible, the program is built without CUDA in a folder of its own, because CUDA's
# kernels are a third of the work. A folder that is configured already is used.
preset_for_this_machine() {
  if [[ -e build/release/build.ninja ]] || compgen -G '/dev/nvidia[0-9]*' > /dev/null ||
    nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
    echo release
  else
    echo cpu
  fi
}

download_package() {
  apt-get -qq -o APT::Sandbox::User= download "$1" 2>> apt.log && return
  # A fresh machine has no package lists yet.
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo > /dev/null || return
    as_root=(sudo -n)
  fi
  "${as_root[@]}" apt-get -qq update 2>> apt.log
  apt-get -qq -o APT::Sandbox::User= download "$1" 2>> apt.log
}

# Writes the dictionary as plain text to the file $1. The package is unpacked, not installed.
fetch_dictionary() {
  local scratch=$folder/download
  rm -rf "$scratch"
  mkdir "$scratch"
  cd "$scratch"
  if ! download_package dict-gcide; then
    sed 's/^/  /' apt.log >&2
    rm -rf "$scratch"
    fail 3 "the package dict-gcide cannot be downloaded; give any text with --text PATH"
  fi
  dpkg -x dict-gcide_*.deb unpacked
  zcat < unpacked/usr/share/dictd/gcide.dict.dz > dictionary.txt
  mv dictionary.txt "$1"
  cd "$root"
  rm -rf "$scratch"
}

# Prints the first $2 bytes of a file, or of the concatenated files of a folder.
first_bytes() {
  local ended
  find -L "$1" -type f -print0 | sort -z | xargs -0 -r cat -- | head -c "$2" &&
    ended=("${PIPESTATUS[@]}") || ended=("${PIPESTATUS[@]}")
  # head closes the pipe early on purpose, which ends cat by a signal: then xargs ends with 125.
  [[ ${ended[0]} -eq 0 && ${ended[2]} -ne 123 ]] || fail 3 "cannot read the text '$1'"
}

make_corpus() {
  local source=${text:-dict-gcide} kind=$short begun
  mkdir -p "$folder"
  if there "$folder/corpus.source"; then
    begun=$(< "$folder/corpus.source")
    [[ $begun == "$source, short: $kind" ]] ||
      fail 2 "$folder was begun with another corpus ($begun);" "give another --folder"
  fi

  corpus=${text:-$folder/gcide.txt}
  if [[ -z $text ]] && ! there "$corpus"; then
    fetch_dictionary "$corpus"
  fi
  echo "$source, short: $kind" > "$folder/corpus.source"
  if $short; then
    if ! there "$folder/short.txt"; then
      first_bytes "$corpus" 2000000 > "$folder/short.txt.partial"
      [[ -s $folder/short.txt.partial ]] || fail 3 "there is no text in '$corpus'"
      mv "$folder/short.txt.partial" "$folder/short.txt"
    fi
    corpus=$folder/short.txt
  fi
  du -shL --apparent-size "$corpus"
}

prepare_data() {
  if there "$folder/data/train.h5"; then
    echo "$folder/data is there already"
    return
  fi
  # The last tenth is held back, at most 2 MB.
  local bytes held_back tokenizer=bpe:4096
  bytes=$(du -sbL "$corpus" | cut -f1)
  held_back=$((bytes / 10 < 2000000 ? bytes / 10 : 2000000))
  if $short; then
    tokenizer=bpe:1024
  fi
  rm -rf "$folder/data.partial"
  "$trireme" prepare --input "$corpus" --output "$folder/data.partial" \
    --tokenizer "$tokenizer" --validation "tail:$held_back"
  mv "$folder/data.partial" "$folder/data"
}

train() {
  local options=(--config "$root/jobs/quickstart.ini" --run.folder "$folder/run"
    --data.train "$folder/data/train.h5" --data.validation "$folder/data/validation.h5")
  [[ -z $steps ]] || options+=(--run.steps "$steps")
  if [[ $ranks -ne 4 ]]; then
    # Two ranks share a replica if the number of ranks is even.
    local tensor=$((ranks % 2 == 0 ? 2 : 1))
    options+=(--grid.data $((ranks / tensor)) --grid.tensor "$tensor")
  fi
  "$mpiexec" -n "$ranks" "$trireme" train "${options[@]}"
}

main() {
  parse_options "$@"
  trap 'status=$?; [[ $status -eq 0 ]] || echo "quickstart: stopped in phase $phase, status $status" >&2' EXIT

  cd "$root"
  local preset
  preset=$(preset_for_this_machine)
  begin_phase packages "what is missing is installed through apt"
  "$root/jobs/install_packages.sh"
  if [[ $preset == release ]]; then
    "$root/jobs/install_cudnn_frontend.sh"
  fi
  mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)

  begin_phase build "$root/build/$preset"
  cmake --preset "$preset" "${build_options[@]}" > /dev/null
  cmake --build --preset "$preset" --target trireme
  trireme=$root/build/$preset/bin/trireme

  begin_phase corpus "${text:-the GNU Collaborative International Dictionary of English}"
  make_corpus

  begin_phase prepare "text into tokens, $folder/data"
  prepare_data

  begin_phase train "$ranks ranks, $folder/run"
  train

  begin_phase eval "loss on text that was held back"
  "$trireme" eval --checkpoint "$folder/run" --data "$folder/data/validation.h5"

  begin_phase sample "what it has learnt"
  "$trireme" generate --checkpoint "$folder/run" --prompt "A ship is"

  end_phase
  print_phases
}

main "$@"
