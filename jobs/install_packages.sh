#!/usr/bin/env bash
# Installs the Debian packages of a list that are not installed yet; by default all that Trireme needs.
#
#     jobs/install_packages.sh [LIST]
#
# A package that is followed by no-service never runs as a service: it is not started now, nor when the machine starts.
#
# Runs apt-get as root, with sudo if that needs no password or if somebody is at the terminal to type
# it. Ends with 0 when everything is installed, with 2 when packages are missing and the user may not
# install them (it then prints the command for somebody who may), and with apt-get's own status when
# that fails.
set -euo pipefail

list=${1:-$(dirname "${BASH_SOURCE[0]}")/packages.txt}
if [[ $# -gt 1 || $list == -* ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  [[ $# -eq 1 && $list == --help ]] && exit 0
  exit 2
fi
if [[ ! -r $list ]]; then
  echo "install_packages: cannot read the list of packages '$list'" >&2
  exit 2
fi
mapfile -t wanted < <(sed -e 's/#.*//' "$list" | awk 'NF { print $1 }')
mapfile -t silent < <(sed -e 's/#.*//' "$list" | awk '$2 == "no-service" { print $1 }')

missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f='${Package}=${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null || true)
  for name in "${wanted[@]}"; do
    grep -qxF "$name=installed" <<< "$installed" || echo "$name"
  done
}

if ! command -v dpkg-query > /dev/null; then
  echo "install_packages: this is no Debian system; install the like of: ${wanted[*]}" >&2
  exit 2
fi
mapfile -t missing < <(missing_packages)
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo > /dev/null || ! { sudo -n true 2> /dev/null || [[ -t 0 ]]; }; then
    {
      echo "install_packages: packages are missing, and the rights to install them. Ask for:"
      echo "  apt-get install --no-install-recommends ${missing[*]}"
    } >&2
    exit 2
  fi
  as_root=(sudo)
fi

# Debian starts what it installs unless this file says that it may not; one that is there stays.
policy=${TRIREME_ETC:-}/usr/sbin/policy-rc.d
ask_for_silence() {
  ((${#silent[@]})) || return 0
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -D -m 755 /dev/stdin "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
  fi
  local name
  for name in "${silent[@]}"; do
    "${as_root[@]}" mkdir -p "${TRIREME_ETC:-}/etc/systemd/system"
    [[ -e ${TRIREME_ETC:-}/etc/systemd/system/$name.service ]] ||
      "${as_root[@]}" ln -sfn /dev/null "${TRIREME_ETC:-}/etc/systemd/system/$name.service"
  done
}

echo "installing ${missing[*]}"
apt_get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
"${apt_get[@]}" update
ask_for_silence
"${apt_get[@]}" -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}" > /dev/null
