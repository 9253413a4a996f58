#!/usr/bin/env bash
# Looks for faults that compilers and tests let pass. tests/run.sh --lint calls it.
usage() {
  cat << 'TEXT'
usage: tests/lint.sh [--full | --staged]

  (no option)  clang-format and clang-tidy 16 on what changed since the commit that last changed the version;
               clang-tidy begins no file after 60 s (TRIREME_TIDY_SECONDS) and says how many it has not reached
  --full       both on everything, however long it takes
  --staged     clang-format alone, on what is staged for a commit (.githooks/pre-commit)
  --help       this text

clang-tidy reads no CUDA sources, and no precompiled headers. In a shallow clone that lacks the commit of the version,
and outside of a clone, the format of everything is checked and clang-tidy is left out, with a line that says so.

Ends with a line "N passed, N failed, N skipped", where each of the two counts as one. Status 0 when none failed, 1 when
one did, 2 for a wrong option.
TEXT
}
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-changed}
case $what in
  changed | --full | --staged) ;;
  --help)
    usage
    exit 0
    ;;
  *)
    echo "tests/lint.sh: no option is called '$what'; --help shows all of them" >&2
    exit 2
    ;;
esac
formatter=clang-format-14  # Debian 12's: others lay out a few lines in another way
tidy=clang-tidy-16         # the oldest that compiles this code
seconds=${TRIREME_TIDY_SECONDS:-60}
build=build/lint
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0

# The C++ and CUDA files among the paths on standard input.
sources() { grep -E '\.(h|cc|cu|cuh)$' || true; }
all_files() { git ls-files 2> /dev/null || find io include src tests perf modules -type f; }

# The commit that last changed the version; nothing where the history here does not say.
version_commit() {
  local commit shallow
  commit=$(git log -1 --format=%H -G'^project\(\w+ VERSION ' -- CMakeLists.txt 2> /dev/null) || return 0
  # All that a shallow clone's oldest commits have in them looks new.
  shallow=$(git rev-parse --git-path shallow)
  if [[ -e $shallow ]] && grep -qx "$commit" "$shallow"; then
    return 0
  fi
  echo "$commit"
}

# What is not committed yet, then what was committed last, first.
changed_since() {
  {
    git diff --name-only --diff-filter=d HEAD
    git ls-files --others --exclude-standard
    git log --format= --name-only --diff-filter=d "$1..HEAD"
  } | awk '!seen[$0]++' > "$scratch/named"
  # A file that was only moved has not changed.
  git diff --name-only --diff-filter=AM --find-renames=100% "$1" > "$scratch/differ"
  git ls-files --others --exclude-standard >> "$scratch/differ"
  grep -xFf "$scratch/differ" "$scratch/named" || true
}

# Counts what has come to an end: check NAME STATUS.
check() {
  if [[ $2 -eq 0 ]]; then
    passed=$((passed + 1))
  else
    echo "$1: see above"
    failed=$((failed + 1))
  fi
}
skip() {
  echo "skipped: $1"
  skipped=$((skipped + 1))
}

check_format() {
  local file status=0
  if ! command -v "$formatter" > /dev/null; then
    skip "there is no $formatter"
    return
  fi
  if [[ $what == --staged ]]; then
    while read -r file; do
      git show ":$file" | "$formatter" --assume-filename="$file" > "$scratch/formatted"
      if ! git show ":$file" | cmp -s - "$scratch/formatted"; then
        echo "$file: not as $formatter lays it out; $formatter -i $file && git add $file"
        status=1
      fi
    done < "$scratch/files"
  elif [[ -s $scratch/files ]]; then
    tr '\n' '\0' < "$scratch/files" | xargs -0 -P "$(nproc)" -n 16 "$formatter" --dry-run --Werror || status=1
  fi
  check "clang-format ($formatter -i FILE mends it)" "$status"
}

# The sources that clang-tidy compiles for the files of $1: these, and for a header that has none of its name a file
# that includes it.
compiled_for() {
  local file stem
  {
    grep -E '\.cc$' "$1" || true
    { grep -E '\.h$' "$1" || true; } | while read -r file; do
      stem=$(basename "$file" .h)
      if ! grep -qE "(^|/)$stem\.cc$" "$1"; then
        git grep -lE "#include \"([^\"]*/)?$stem\.h\"" -- '*.cc' | head -n 1 || true
      fi
    done
  } | awk '!seen[$0]++'
}

# Prints the name of each file of the build, from here, on a line. What the build leaves out cannot be looked at.
known_files() {
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sed "s|^$PWD/||"
}

# One file, where there is time left.
tidy_file() {
  local me=$BASHPID  # in a redirection it would be another
  if ((EPOCHSECONDS >= $4)); then
    echo "$3" >> "$2/unreached"
  elif ! "$1" -p "$5" --quiet "$3" >> "$2/said.$me" 2> "$2/errors.$me"; then
    echo "$3" >> "$2/found"
    grep -E 'error:|^Error' "$2/errors.$me" >> "$2/said.$me" || true
  fi
}
export -f tidy_file

check_tidy() {
  if ! command -v "$tidy" > /dev/null; then
    skip "there is no $tidy"
    return
  fi
  # What a test makes of a page is a source, too.
  if ! { cmake --preset release -B "$build" -DTRIREME_PRECOMPILED_HEADERS=OFF -DTRIREME_CUDA=OFF -DTRIREME_OPENMP=OFF \
    -DTRIREME_UNITY=0 -DCCACHE=OFF && cmake --build "$build" --target page_code; } > "$scratch/configured" 2>&1; then
    cat "$scratch/configured"
    check clang-tidy 1
    return
  fi
  known_files > "$scratch/known"
  if [[ $what == --full ]]; then
    cp "$scratch/known" "$scratch/queue"
    seconds=1000000
  else
    compiled_for "$scratch/files" | { grep -xFf "$scratch/known" || true; } > "$scratch/queue"
  fi
  local unreached=0 status=0
  tr '\n' '\0' < "$scratch/queue" |
    xargs -0 -r -P "$(nproc)" -I {} bash -c 'tidy_file "$@"' - "$tidy" "$scratch" {} $((EPOCHSECONDS + seconds)) "$build"
  cat "$scratch"/said.* 2> /dev/null | awk '/: (warning|error): /{ show = !seen[$0]++ } show' > "$scratch/said" || true
  cat "$scratch/said"
  [[ ! -s $scratch/found ]] || status=1
  [[ ! -s $scratch/unreached ]] || unreached=$(wc -l < "$scratch/unreached")
  echo "clang-tidy: $(($(wc -l < "$scratch/queue") - unreached)) files"
  if ((unreached)); then
    echo "clang-tidy did not reach $unreached of them in $seconds s; tests/run.sh --lint --full has no limit"
  fi
  check clang-tidy "$status"
}

if [[ $what == --staged ]]; then
  git diff --cached --name-only --diff-filter=d | sources > "$scratch/files"
  check_format
  [[ $failed -eq 0 ]]
  exit
fi
commit=$(version_commit)
if [[ $what == --full || -z $commit ]]; then
  all_files | sources > "$scratch/files"
else
  changed_since "$commit" | sources > "$scratch/files"
  echo "$(wc -l < "$scratch/files") sources changed since $(git log -1 --format='%h (%s)' "$commit")"
fi
check_format
if [[ $what == --full || -n $commit ]]; then
  check_tidy
else
  skip "clang-tidy: the commit that last changed the version is not here; the format of all files was checked"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
