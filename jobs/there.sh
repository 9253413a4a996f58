# shellcheck shell=bash
# What quickstart.sh and hybrid.sh share. `fail STATUS WORDS` is the caller's.

# FILE: whether it is there. One that cannot be read is neither there nor absent: the script ends with 5.
there() {
  local fault
  ! fault=$(LC_ALL=C head -c 1 -- "$1" 2>&1 > /dev/null) || return 0
  [[ $fault == *": No such file or directory" ]] || fail 5 "$1 cannot be read: ${fault##*: }"
  return 1
}
