#!/usr/bin/env bash
# A Slurm cluster on this host.
usage() {
  cat << 'TEXT'
usage: tests/slurm/cluster.sh up [OPTION...]               starts a cluster, waits until all nodes are idle
       tests/slurm/cluster.sh run [OPTION...] -- CMD...    up, CMD with SLURM_CONF set, down in any case
       tests/slurm/cluster.sh status [--folder D]          nodes and jobs; 0 when all nodes can run jobs
       tests/slurm/cluster.sh down [--folder D]            ends it, and all that runs in it

  --nodes N        nodes n1 to nN (default 4)
  --cpus N         CPUs of each node, as Slurm counts them (default 2)
  --memory N       MB of each node, as Slurm counts them (default 2000)
  --gpus N         gres gpu:N on each node, stand-ins that Slurm allocates and binds (default 0)
  --leaves N       leaf switches below one spine, in topology.conf (default 2)
  --mode MODE      plain: all nodes share this host's network (default)
                   network: each node a network namespace, leaves and spine bridges
  --host-rate R    network mode: between a node and its leaf (default 2gbit)
  --uplink-rate R  network mode: between a leaf and the spine (default 1gbit)
  --quota N        processors of which each node gets the time, all its processes together, such as 0.5
                   (default: no limit)
  --burst SIZE     network mode: what a link lets pass at once after a pause, such as 96k (default 512k)
  --folder D       an absolute path that is empty or not there yet: keys, sockets, logs, spool, slurm.conf
                   (default for up and run: a new one below /tmp; for down and status: that of SLURM_CONF)
  --help           this text

`up` prints what a shell evaluates: eval "$(tests/slurm/cluster.sh up)"; then sbatch, srun, squeue and,
at the end, tests/slurm/cluster.sh down. Partitions: batch (the default), and urgent, which
preempts it: its jobs requeue those of batch.

Plain mode runs as any user, the one whose jobs it runs; network mode, --gpus and --quota need root.

Status: 0 done (`run`: that of CMD), 1 the cluster does not work, 2 usage, 77 where packages or
rights are missing.
TEXT
}
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
fail() {
  echo "cluster.sh: $2" >&2
  exit "$1"
}

# ---- what was asked

nodes=4 cpus=2 memory=2000 gpus=0 leaves=2 mode=plain host_rate=2gbit uplink_rate=1gbit burst=512k quota='' folder='' made=0
command=${1-}
case $command in
  up | down | status | run) shift ;;
  --help)
    usage
    exit 0
    ;;
  *) fail 2 "'$command' is none of up, run, status, down; --help shows more" ;;
esac

number() {
  [[ $2 =~ ^[0-9]{1,6}$ && $2 -ge $3 && $2 -le $4 ]] ||
    fail 2 "$1 must be a number from $3 to $4, not '$2'"
  printf -v "$5" '%d' "$2"
}
rate() {
  [[ $2 =~ ^[0-9]+[kmg]bit$ ]] || fail 2 "$1 must be a rate such as 500mbit or 1gbit, not '$2'"
  printf -v "$3" '%s' "$2"
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    --nodes | --cpus | --memory | --gpus | --leaves | --mode | --host-rate | --uplink-rate | --burst | --quota | --folder)
      [[ $# -gt 1 ]] || fail 2 "$1 needs a value"
      case $1 in
        --nodes) number "$1" "$2" 1 200 nodes ;;
        --cpus) number "$1" "$2" 1 1024 cpus ;;
        --memory) number "$1" "$2" 1 999999 memory ;;
        --gpus) number "$1" "$2" 0 16 gpus ;;
        --leaves) number "$1" "$2" 1 99 leaves ;;
        --mode)
          [[ $2 == plain || $2 == network ]] || fail 2 "--mode must be plain or network, not '$2'"
          mode=$2
          ;;
        --host-rate) rate "$1" "$2" host_rate ;;
        --uplink-rate) rate "$1" "$2" uplink_rate ;;
        --burst)
          [[ $2 =~ ^[1-9][0-9]{0,4}k$ ]] || fail 2 "--burst must be a size from 1k to 99999k, such as 96k, not '$2'"
          burst=$2
          ;;
        --quota)
          [[ $2 =~ ^([1-9][0-9]{0,2}(\.[0-9]{1,3})?|0\.[1-9][0-9]{0,2})$ ]] ||
            fail 2 "--quota must be a number of processors from 0.1 to 999, such as 0.5, not '$2'"
          quota=$2
          ;;
        --folder) folder=$2 ;;
      esac
      shift 2
      ;;
    *) fail 2 "no option is called '$1'; --help shows all of them" ;;
  esac
done
if [[ $command == run ]]; then
  [[ $# -gt 0 ]] || fail 2 "run needs a command: run -- CMD..."
else
  [[ $# -eq 0 ]] || fail 2 "unexpected argument '$1'"
fi
[[ $leaves -le $nodes ]] || fail 2 "$leaves leaves are more than $nodes nodes"
if [[ -z $folder && ($command == down || $command == status) ]]; then
  [[ ${SLURM_CONF-} == */slurm.conf ]] || fail 2 "$command needs --folder D, or SLURM_CONF as up printed it"
  folder=${SLURM_CONF%/slurm.conf}
fi
if [[ -n $folder ]]; then
  [[ $folder =~ ^/[A-Za-z0-9_./+-]+$ && ${#folder} -le 80 ]] ||
    fail 2 "--folder must be an absolute path of at most 80 letters, digits and ._+-/, not '$folder'"
  folder=$(realpath -m "$folder")
fi

# ---- down

# Names of this cluster's namespaces and bridges, shorter than the 15 characters of an interface. They
# follow from the folder, so that `down` needs nothing but its name.
name_links() {
  prefix=t$(cksum <<< "$folder" | { read -r sum _ && printf '%07x' $((sum & 0xfffffff)); })
}

# A file in /proc of each daemon and stepd, of each job process, and of srun and salloc, which would wait
# for ever. Daemons carry a mark of their own: who merely has SLURM_CONF in his environment is not meant.
marked() {
  local file name
  grep -lzsxF "TRIREME_CLUSTER_DAEMON=$folder" /proc/[0-9]*/environ || true
  for file in $(grep -lzsxF "SLURM_CONF=$folder/slurm.conf" /proc/[0-9]*/environ || true); do
    { read -r name < "${file%environ}comm"; } 2> /dev/null || continue
    if [[ $name == srun || $name == salloc ]] || grep -qzs '^SLURM_JOB_ID=' "$file"; then
      echo "$file"
    fi
  done
  # It writes its title over its environment, and keeps its node's log open.
  for file in $(pgrep -x slurmstepd || true); do
    if [[ $(readlink "/proc/$file/fd/"* 2> /dev/null || true) == *"$folder/log/"* ]]; then
      echo "/proc/$file/fd"
    fi
  done
}

# Process ids of these and of their descendants.
members() {
  local -A parent=() found=()
  local stat pid rest own=$BASHPID grew=1 file
  while IFS= read -r file; do
    pid=${file#/proc/}
    found[${pid%%/*}]=1
  done < <(marked)
  for stat in /proc/[0-9]*/stat; do
    { read -r rest < "$stat"; } 2> /dev/null || continue
    pid=${rest%% *}
    rest=${rest##*) }
    [[ $rest != Z* ]] || unset "found[$pid]"
    rest=${rest#* }
    parent[$pid]=${rest%% *}
  done
  while [[ $grew -eq 1 ]]; do
    grew=0
    for pid in "${!parent[@]}"; do
      if [[ -z ${found[$pid]-} && -n ${found[${parent[$pid]}]-} ]]; then
        found[$pid]=1
        grew=1
      fi
    done
  done
  # We are not among them, nor who called us.
  for ((pid = own; pid > 1; pid = ${parent[$pid]:-$PPID})); do
    unset "found[$pid]"
    [[ $pid -ne $PPID || -n ${parent[$pid]-} ]] || break
  done
  [[ ${#found[@]} -eq 0 ]] || printf '%s\n' "${!found[@]}"
}

end_members() {
  local round alive
  for ((round = 0; round < 100; ++round)); do
    mapfile -t alive < <(members)
    [[ ${#alive[@]} -gt 0 ]] || return 0
    kill -KILL "${alive[@]}" 2> /dev/null || true
    sleep 0.05
  done
  fail 1 "processes that do not end: ${alive[*]}"
}

remove_links() {
  local name
  command -v ip > /dev/null || return 0
  for name in $(ip -o link show | sed -n "s/^[0-9]*: \(${prefix}[a-z0-9]*\)[@:].*/\1/p"); do
    ip link delete "$name" 2> /dev/null || true  # its peer takes it along
  done
  for name in $(ip netns list | sed -n "s/^\(${prefix}[a-z0-9]*\).*/\1/p"); do
    ip netns delete "$name"
  done
}

# ---- quotas of processor time: a control group for each node, which all its processes are in

# The folder of groups that have one, of version 2 or of version 1; empty: there is none. (After a signal
# a return without a number would return the status of that signal.)
quota_root() {
  local kind folder options
  while read -r _ folder kind options _; do
    if [[ $kind == cgroup2 ]] && grep -qsw cpu "$folder/cgroup.controllers"; then
      echo "$folder"
      return 0
    elif [[ $kind == cgroup && ,$options, == *,cpu,* ]]; then
      echo "$folder"
      return 0
    fi
  done < /proc/mounts
}

# Gives node $1 its share in periods of 10 ms, so that the node waits for it often and not long.
make_quota() {
  local root group period=10000 share
  root=$(quota_root)
  group=$root/$prefix-n$1
  share=$(awk -v n="$quota" -v period=$period 'BEGIN { printf "%d", n * period + 0.5 }')
  if [[ -z $root ]] || ! mkdir "$group"; then
    fail 77 "--quota needs control groups with processor time, and may not make them here"
  fi
  if [[ -e $root/cgroup.controllers ]]; then
    # Where the root is not the host's own and has processes, groups below it can only be threaded.
    { grep -qw cpu "$root/cgroup.subtree_control" || echo +cpu > "$root/cgroup.subtree_control"; } &&
      { ! grep -qsx 'domain invalid' "$group/cgroup.type" || echo threaded > "$group/cgroup.type"; } &&
      echo "$share $period" > "$group/cpu.max"
  else
    echo $period > "$group/cpu.cfs_period_us" && echo "$share" > "$group/cpu.cfs_quota_us"
  fi || fail 77 "--quota: $group takes no quota of processor time"
  # shellcheck disable=SC2016
  sh -c 'echo $$ > "$0/cgroup.procs"' "$group" 2> /dev/null || fail 77 "--quota: processes may not enter $group"
}

# Ends what is still in a node's group. A group goes only when its last thread has, a moment after kill.
remove_quotas() {
  local root group round listed inside
  root=$(quota_root)
  left=()
  [[ -n $root ]] || return 0
  for ((round = 0; round < 100; ++round)); do
    left=()
    for group in "$root/$prefix"-n*; do
      [[ -d $group ]] || continue
      ! rmdir "$group" 2> /dev/null || continue
      left+=("$group")
      # A threaded group lists threads only. 0 is a process that this namespace does not see, and for
      # kill our own group.
      listed=$(cat "$group/cgroup.procs" 2> /dev/null || cat "$group/cgroup.threads" 2> /dev/null || true)
      mapfile -t inside < <(grep -vx -e 0 -e "$$" <<< "$listed" || true)
      kill -KILL "${inside[@]}" 2> /dev/null || true
    done
    [[ ${#left[@]} -gt 0 ]] || return 0
    sleep 0.05
  done
}

# Nothing of it stays, however far `up` has come, but that groups below the root may have quotas: other
# clusters may need that. A folder that is not a cluster's is left alone.
down() {
  local left
  name_links
  end_members
  remove_links
  remove_quotas
  if [[ -e $folder/.cluster || $made -eq 1 ]]; then
    rm -rf -- "$folder"
  fi
  [[ ${#left[@]} -eq 0 ]] || fail 1 "control groups that cannot be removed: ${left[*]}"
}

# ---- up

check_means() {
  local tool missing=()
  local tools=(slurmctld slurmd munged sinfo scontrol ss pgrep)
  [[ $mode == plain ]] || tools+=(ip tc nsenter unshare)
  for tool in "${tools[@]}"; do
    command -v "$tool" > /dev/null || missing+=("$tool")
  done
  [[ ${#missing[@]} -eq 0 ]] ||
    fail 77 "not installed: ${missing[*]} (Debian: slurmctld slurmd slurm-client munge iproute2 procps)"
  if [[ $(id -u) -ne 0 && ($mode != plain || $gpus -gt 0 || -n $quota) ]]; then
    fail 77 "--mode network, --gpus and --quota need root; this is the user $(id -un)"
  fi
  [[ $mode == plain ]] || may_make_network
}

# Tried where it leaves nothing: in a namespace that ends with the command.
may_make_network() {
  local said
  said=$(unshare --net sh -c 'ip link add name br0 type bridge &&
    ip link add name veth0 type veth peer name veth1 && tc qdisc add dev veth0 root tbf rate 1gbit burst 512k limit 8m' 2>&1) ||
    fail 77 "network mode needs namespaces, bridges and tbf, and may not make them here: ${said//$'\n'/; }"
}

# From here on there is something to clear away.
make_folder() {
  if [[ -z $folder ]]; then
    folder=$(mktemp -u /tmp/trireme_cluster.XXXXXX)
  elif [[ -e $folder/.cluster ]]; then
    fail 2 "$folder holds a cluster; end it: cluster.sh down --folder $folder"
  elif [[ -d $folder && -n $(ls -A "$folder") ]]; then
    fail 2 "$folder is not empty"
  fi
  name_links
  made=1
  mkdir -p "$folder"
  touch "$folder/.cluster"
  chmod 755 "$folder"
  mkdir -m 700 "$folder/munge"
  mkdir "$folder/spool" "$folder/state" "$folder/log" "$folder/dev"
}

# A run of free ports below those that the system hands out by itself.
find_ports() {
  local count=$1 used port try
  used=$(ss -Htan | awk '{ sub(/.*:/, "", $4); print $4 }')
  for ((try = 0; try < 200; ++try)); do
    first_port=$((15000 + (RANDOM * 32768 + RANDOM) % 17000))
    for ((port = first_port; port < first_port + count; ++port)); do
      ! grep -qxF "$port" <<< "$used" || continue 2
    done
    return
  done
  fail 1 "no $count free ports in a row"
}

# 10.x.y.0/24, which no other route of this host covers.
find_network() {
  local try
  for ((try = 0; try < 200; ++try)); do
    network=10.$((RANDOM % 256)).$((RANDOM % 256))
    ip -4 route show table all match "$network.1" | grep -qv '^default' || return 0
  done
  fail 1 "no free network 10.x.y.0/24"
}

leaf_of() { echo $((($1 - 1) * leaves / nodes + 1)); }

shape() { tc qdisc add dev "$1" root tbf rate "$2" burst "$burst" limit 8m; }

# What a node has under way in one stream fits in the queues of the links, so no packet is lost and streams
# share a link evenly, as on a network with credits (InfiniBand). With the host's own settings, which may be
# BBR with windows of megabytes, two streams of equal length got 4 and 44 MB/s of one link.
bound_streams() {
  ip netns exec "$1" sysctl -qw net.ipv4.tcp_congestion_control=reno \
    net.ipv4.tcp_wmem='4096 16384 262144' net.ipv4.tcp_rmem='4096 131072 262144'
}

make_network() {
  local leaf node spine=${prefix}s
  find_network
  ip link add "$spine" type bridge
  ip address add "$network.254/24" dev "$spine"
  ip link set "$spine" up
  for ((leaf = 1; leaf <= leaves; ++leaf)); do
    ip link add "${prefix}l$leaf" type bridge
    ip link add "${prefix}u$leaf" type veth peer name "${prefix}d$leaf"
    ip link set "${prefix}u$leaf" master "${prefix}l$leaf" up
    ip link set "${prefix}d$leaf" master "$spine" up
    shape "${prefix}u$leaf" "$uplink_rate"
    shape "${prefix}d$leaf" "$uplink_rate"
    ip link set "${prefix}l$leaf" up
  done
  for ((node = 1; node <= nodes; ++node)); do
    ip netns add "${prefix}n$node"
    ip link add "${prefix}h$node" type veth peer name eth0 netns "${prefix}n$node"
    ip link set "${prefix}h$node" master "${prefix}l$(leaf_of "$node")" up
    shape "${prefix}h$node" "$host_rate"
    bound_streams "${prefix}n$node"
    ip -n "${prefix}n$node" link set lo up
    ip -n "${prefix}n$node" link set eth0 up
    ip -n "${prefix}n$node" address add "$network.$node/24" dev eth0
    ip netns exec "${prefix}n$node" tc qdisc add dev eth0 root tbf rate "$host_rate" burst "$burst" limit 8m
  done
}

write_configuration() {
  local node leaf gres='' controller=127.0.0.1 members
  [[ $mode == plain ]] || controller=$network.254
  [[ $gpus -eq 0 ]] || gres=" Gres=gpu:$gpus"
  cat > "$folder/slurm.conf" << TEXT
ClusterName=$prefix
SlurmctldHost=$(hostname -s)($controller)
SlurmctldPort=$first_port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CryptoType=crypto/munge
# A requeued job waits until its credential has expired.
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=pmi2
TopologyPlugin=topology/tree
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# What decides how long a test takes.
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=1
SlurmdTimeout=15
KillWait=5
MessageTimeout=5
UnkillableStepTimeout=10
TEXT
  {
    [[ $gpus -eq 0 ]] || echo "GresTypes=gpu"
    for ((node = 1; node <= nodes; ++node)); do
      if [[ $mode == plain ]]; then
        echo "NodeName=n$node NodeHostname=$(hostname -s) NodeAddr=127.0.0.1" \
          "Port=$((first_port + node)) CPUs=$cpus RealMemory=$memory$gres"
      else
        echo "NodeName=n$node NodeHostname=n$node NodeAddr=$network.$node" \
          "Port=$((first_port + 1)) CPUs=$cpus RealMemory=$memory$gres"
      fi
    done
    echo "PartitionName=batch Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES PriorityTier=1"
    echo "PartitionName=urgent Nodes=n[1-$nodes] MaxTime=INFINITE State=UP OverSubscribe=YES PriorityTier=10"
  } >> "$folder/slurm.conf"
  for ((leaf = 1; leaf <= leaves; ++leaf)); do
    members=
    for ((node = 1; node <= nodes; ++node)); do
      [[ $(leaf_of "$node") -ne $leaf ]] || members+=${members:+,}n$node
    done
    echo "SwitchName = leaf$leaf \\"
    echo "  nodes=\"$members\"# rack $leaf"
  done > "$folder/racks.conf"
  # Administrators write it so: the program reads this file too, as Slurm does.
  printf '# the network\nInclude racks.conf\nSwitchName=spine1 Switches=leaf[1-%d]\n' "$leaves" > "$folder/topology.conf"
  if [[ $gpus -gt 0 ]]; then
    for ((node = 0; node < gpus; ++node)); do
      mknod "$folder/dev/nvidia$node" c 1 3 ||
        fail 77 "--gpus needs character devices, and may not make them in $folder"
    done
    echo "NodeName=n[1-$nodes] Name=gpu File=$folder/dev/nvidia[0-$((gpus - 1))]" > "$folder/gres.conf"
  fi
}

# Daemons hold neither our lock nor the pipe that reads what `up` prints.
daemon() {
  TRIREME_CLUSTER_DAEMON=$folder SLURM_CONF=$folder/slurm.conf \
    "$@" < /dev/null >> "$folder/log/start.log" 2>&1 9>&-
}

start_daemons() {
  local node start enter=''
  (umask 077 && head -c 1024 /dev/urandom > "$folder/munge/key")
  chmod 711 "$folder/munge"
  daemon munged --force --socket="$folder/munge/socket" --key-file="$folder/munge/key" \
    --log-file="$folder/log/munged.log" --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed"
  daemon slurmctld
  for ((node = 1; node <= nodes; ++node)); do
    if [[ -n $quota ]]; then
      make_quota "$node"
      enter="echo \$\$ > $(quota_root)/$prefix-n$node/cgroup.procs && "
    fi
    if [[ $mode == plain ]]; then
      # shellcheck disable=SC2016
      daemon sh -c "$enter"'exec slurmd -N "$0"' "n$node"
    else
      # Not `ip netns exec`: it mounts a /sys of its own, in which slurmd finds no cgroups.
      # shellcheck disable=SC2016
      start='hostname "$0" && exec slurmd -N "$0"'
      daemon nsenter --net="/run/netns/${prefix}n$node" unshare --uts sh -c "$enter$start" "n$node"
    fi
  done
}

wait_until_idle() {
  local end=$((SECONDS + 30)) states
  while ((SECONDS < end)); do
    states=$(SLURM_CONF=$folder/slurm.conf sinfo -h -N -p batch -o %T 2> /dev/null || true)
    [[ $(grep -cx idle <<< "$states" || true) -ne $nodes ]] || return 0
    sleep 0.1
  done
  fail 1 "the nodes did not become idle in 30 s: ${states//$'\n'/ }"
}

up() {
  local began=${EPOCHREALTIME/[.,]/}
  check_means
  # One at a time chooses ports and addresses.
  exec 9< "${BASH_SOURCE[0]}"
  flock 9
  trap give_up EXIT
  # A signal becomes an exit, so that the trap above runs.
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  make_folder
  find_ports $((nodes + 1))
  [[ $mode == plain ]] || make_network
  write_configuration
  start_daemons
  wait_until_idle
  exec 9<&-
  echo "$nodes nodes idle after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms in $folder" >&2
}

give_up() {
  local status=$?
  trap - EXIT
  trap '' HUP INT TERM
  if [[ $made -eq 1 ]]; then
    if [[ $status -eq 1 && -d $folder/log ]]; then
      tail -n 20 "$folder"/log/*.log >&2 || true
    fi
    down
  fi
  exit "$status"
}

run() {
  local status=0 child
  export SLURM_CONF=$folder/slurm.conf
  # It runs in the background, so that a signal to this script ends the command too.
  "$@" <&0 &
  child=$!
  trap 'kill -TERM "$child" 2> /dev/null || true; exit 129' HUP
  trap 'kill -TERM "$child" 2> /dev/null || true; exit 130' INT
  trap 'kill -TERM "$child" 2> /dev/null || true; exit 143' TERM
  wait "$child" || status=$?
  trap '' HUP INT TERM
  trap - EXIT
  down
  exit "$status"
}

status() {
  [[ -e $folder/slurm.conf ]] || fail 1 "no cluster in $folder"
  export SLURM_CONF=$folder/slurm.conf
  sinfo -N -p batch -o '%6N %10T %5c %7m %10G %E' || fail 1 "the controller does not answer"
  squeue
  ! sinfo -h -N -p batch -o %T | grep -qvxE 'idle|mixed|allocated|completing' ||
    fail 1 "some nodes cannot run jobs"
}

case $command in
  up)
    up
    trap - EXIT HUP INT TERM
    echo "export SLURM_CONF=$folder/slurm.conf"
    ;;
  run)
    up
    run "$@"
    ;;
  down) down ;;
  status) status ;;
esac
