# shellcheck shell=bash
# `trireme job` inlines this into every job script. It runs steps, continues after ranks or nodes were
# lost, and reports what happens to the job. README.md in this folder describes what users see of it.

# A signal must not end this shell before it has seen how the step ended.
trap : TERM INT USR1 USR2 XCPU

# trireme would set this itself and restart (src/cli/openmp_waiting.h). With many ranks that restart is
# half of its loading time.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

say() { echo "trireme: $*" >&2; }
again=no  # whether to start the job again, whatever its status
watch=    # the process of keep_watch
run=      # the run folder of run_to_end
# sbatch passes on the variables of the job inside of which it is called. Slurm overwrites what every job has, but
# not the numbers of an array or of a heterogeneous job where this one is none.
forget_other_job() {
  local known
  [[ ${SLURM_JOB_ID_HET_GROUP_0-} == "$SLURM_JOB_ID" ]] || unset SLURM_HET_SIZE SLURM_PACK_SIZE
  [[ -n ${SLURM_ARRAY_JOB_ID-} ]] || return 0
  known=$(timeout 20 squeue -h -j "$SLURM_JOB_ID" -o %i 2> /dev/null)
  [[ -z $known ]] || grep -qxF "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" <<< "$known" || unset "${!SLURM_ARRAY_@}"
}
forget_other_job
# The job's name for commands. The number alone may mean all tasks of a job array.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
# All starts of the run in this job belong together: --run.resume never or PATH applies to the first
# start, and the others continue from there. A name that such a script has set belongs to its own job.
if [[ -z ${TRIREME_JOB-} || $TRIREME_JOB == "${TRIREME_JOB_SET-}" ]]; then
  export TRIREME_JOB=$job TRIREME_JOB_SET=$job
fi
# When Slurm received this job and when it started it, in seconds since 1970. The run's events record them,
# which shows how long the run was queued. After a requeue the job counts as new. Empty if Slurm does not say.
# They are of this job alone: one that is submitted in it gets these variables, too.
export TRIREME_JOB_SUBMITTED='' TRIREME_JOB_STARTED='' TRIREME_JOB_OF=$SLURM_JOB_ID

# Says what runs where: the first line of each start in the log.
begin_log() {
  local program
  program=$(timeout -k 2 20 @TRIREME@ version 2> /dev/null | sed -n '1p; s/^commit  */commit /p' | paste -sd,)
  echo "job $job (${SLURM_JOB_NAME-})${SLURM_RESTART_COUNT:+, start $((SLURM_RESTART_COUNT + 1))}, nodes" \
    "$SLURM_JOB_NODELIST, ${program//,/, }"
}

# run_step SRUN_OPTION... -- COMMAND...: runs a step on all tasks of the job, or on those that the
# options name. Returns the step's status, or 76 if the launcher killed it; then one line says where.
# After 76, $cause is the message about it.
run_step() {
  local srun_options=() errors status watcher
  while [[ $1 != -- ]]; do
    srun_options+=("$1")
    shift
  done
  shift
  errors=$(mktemp)
  end_what_is_lost "$errors" > /dev/null 2>&1 &
  watcher=$!
  # Passes standard error on, and keeps it for messages about tasks that were killed. srun calls it an
  # error if tasks end with 75, but it is none: end_job says what it means.
  {
    srun -K1 --wait=60 --overlap --job-name=step --mpi=@MPI@ --cpus-per-task=@CPUS_PER_TASK@ \
      "${srun_options[@]}" @SRUN_OPTIONS@ "$@" 2>&1 >&3 3>&- | tee "$errors" |
      grep --line-buffered -vE '^srun: error: .*: Exited with exit code 75$' >&2
    status=${PIPESTATUS[0]}
  } 3>&1
  { kill -KILL "$watcher" && wait "$watcher"; } 2> /dev/null
  [[ $status -ge 128 || $status -eq 76 ]] && find_cause "$errors"
  if [[ $status -ge 128 ]]; then
    [[ $cause == trireme:* ]] ||
      say "the step was killed, status $status, before a rank could speak: ${cause:-srun named no task}"
    status=76
  fi
  rm -f "$errors"
  return "$status"
}

# srun waits forever for a task whose end nobody can report, because its slurmstepd was killed or its
# node is out of reach. So this ends the whole step a while after its first task has ended.
end_what_is_lost() {
  local grace step
  trap : TERM INT USR1 USR2 XCPU
  until grep -qE '^srun: .*(task|Task|Node|NODE|Terminating|aborted)' "$1"; do
    sleep 1
  done
  grace=$(scontrol show config 2> /dev/null | sed -n 's/^KillWait *= *\([0-9]*\) sec.*/\1/p')
  sleep $((${grace:-30} + 10))
  # Tries again, because the controller may be out of reach for a while.
  while sleep 1; do
    step=$(squeue -h -s -j "$job" -o '%i %j' | sort -t. -k2 -n |
      awk '$2 == "step" { last = $1 } END { print last }')
    [[ -z $step ]] || scancel "$step"
    [[ -z $step ]] || break
  done
}

# Sets cause to the first message of a rank, or of srun about the first task that was killed. srun kills
# the other tasks itself, or they lose their connection to it. Slurm's "CANCELLED" says least, so it comes
# last. If the network was cut in two, each part says that it cannot reach the other; the message of this
# node's part counts.
find_cause() {
  local line
  while read -r line; do
    if ! out_of_reach "$line" | grep -qxF "$SLURMD_NODENAME"; then
      cause=$line
      return
    fi
  done < <(grep -E '^trireme: .* cannot be reached from ' "$1")
  cause=$(grep -m1 -E '^trireme: .*(rank|host)|Killed|Node failure|NODE FAILURE|Segmentation|Aborted|Bus error|Out Of Memory|Terminated' "$1" ||
    grep -m1 -E 'CANCELLED|Exited with exit code|Communication' "$1")
}

# Prints the lost nodes in a line "...: n3, n4 cannot be reached from n1 ...": n3 and n4.
out_of_reach() { sed -n 's/.*[:;] \([^:;]*\) cannot be reached from .*/\1/p' <<< "$1" | sed 's/, */\n/g'; }

# FORMAT: prints what squeue says of this job; of a heterogeneous one, of the part that this script belongs to.
told_of_job() { timeout 10 squeue -h -j "$job" -o "$1|%A" 2> /dev/null | sed -n "s/|$SLURM_JOB_ID\$//p"; }
# The same of scontrol, on one line.
shown_of_job() { timeout 20 scontrol -o show job "$job" 2> /dev/null | grep -E "^JobId=$SLURM_JOB_ID( |\$)"; }

# Prints the nodes that the job has now, since Slurm takes lost ones away. If Slurm does not answer,
# prints the nodes that the job began with.
job_nodes() {
  local nodes
  nodes=$(told_of_job %N)
  scontrol show hostnames "${nodes:-$SLURM_JOB_NODELIST}"
}

# NAME TEXT: prints the value of a field in the output of `scontrol -o show job`. A path may hold blanks.
field() { sed -n "s/.* $1=//; T; s/ [A-Z][A-Za-z]*=.*//; s/ *$//; p" <<< "$2"; }

# Joins lines of names to one line, "n1, n2".
listed() { paste -sd, | sed 's/,/, /g'; }

# run_to_end FOLDER SRUN_OPTION... -- COMMAND...: runs the step that trains in this run folder. If it
# ends with 76, runs it again on the nodes that are left. Returns the last status. Losses are written to
# the folder's events.jsonl and counted there, because that file outlives this start of the job.
run_to_end() {
  run=$1
  local folder=$1 status nodes=() answers='' early=0 failures row
  shift
  note_times
  begin_log
  keep_watch "$folder" > /dev/null 2>&1 &
  watch=$!
  while :; do
    failures=$(failures_of_job "$folder") || return 5
    choose_nodes || return 76
    run_step --nodes="${#nodes[@]}" --ntasks="$((${#nodes[@]} * tasks_per_node))" \
      --nodelist="$(IFS=, && echo "${nodes[*]}")" "$@"
    status=$?
    [[ $status -eq 76 ]] || return "$status"
    wait_for_controller
    answers=$(job_nodes | ask)
    note_failure "$folder" || early=$((early + 1))
    row=$(failures_in_a_row "$folder") || return 5
    if [[ $row -ge $most_failures || $early -ge $most_failures ]]; then
      say "$most_failures failures in a row without a new checkpoint (job.failures): the job ends"
      return 76
    fi
  done
}

note_times() {
  local told restarts
  told=$(TZ=UTC shown_of_job)
  # Where the job has not been started again, Slurm leaves the count of the one that sbatch was called in.
  restarts=$(field Restarts "$told")
  [[ -z $restarts ]] || export SLURM_RESTART_COUNT=${restarts#0}
  TRIREME_JOB_SUBMITTED=$(seconds_of "$(field SubmitTime "$told")")
  TRIREME_JOB_STARTED=$(seconds_of "$(field StartTime "$told")")
}
# TIME: prints a time in Slurm's format as seconds since 1970. Prints nothing for "Unknown".
seconds_of() { [[ $1 != [0-9]*T* ]] || date -u -d "$1" +%s; }

# Waits until Slurm's controller can be reached. Without it nobody knows which nodes are lost, and no step
# can be started. If this node is the one that is cut off, the job starts again elsewhere (keep_watch), and
# this start of the job ends.
wait_for_controller() {
  local told='' start
  until scontrol ping > /dev/null 2>&1; do
    [[ -n $told ]] || say "Slurm's controller cannot be reached from $SLURMD_NODENAME: the job waits for it"
    told=yes
    sleep 5
  done
  start=$(field Restarts "$(shown_of_job)")
  if [[ -n $start && $start -ne ${SLURM_RESTART_COUNT:-0} ]]; then
    say "the job was started again without $SLURMD_NODENAME: this start of it ends"
    end_job 76
  fi
}

tasks_per_node=@TASKS_PER_NODE@
model_ranks=@MODEL_RANKS@    # of one replica on each island; the number of ranks must be a multiple of it
micro_batches=@MICRO_BATCHES@  # of a step; the data replicas must divide it. 0: any number of replicas will do
fewest_nodes=@FEWEST_NODES@  # with fewer the run does not continue
most_failures=@FAILURES@     # in a row, before the job ends

# Whether the ranks of nodes fill whole replicas, of a number that the run can have. No nodes do.
ranks_fit() {
  local ranks=$((${#nodes[@]} * tasks_per_node))
  [[ $((ranks % model_ranks)) -eq 0 ]] || return 1
  [[ $ranks -eq 0 || $((micro_batches % (ranks / model_ranks))) -eq 0 ]]
}

# Sets nodes to those that the next step runs on: all nodes of the job as long as nothing was lost, and
# afterwards those that answer, except any that this job has lost twice.
choose_nodes() {
  local all left_out lost_twice=() silent=() node
  mapfile -t nodes < <(job_nodes)
  if [[ -n $answers || -n $failures ]]; then
    left_out=$(sed -n 's/.*"nodes":"\([^"]*\)".*/\1/p' <<< "$failures" | tr ' ' '\n' |
      sort | uniq -c | awk '$1 >= 2 { print $2 }')
    answers=${answers:-$(job_nodes | ask)}
    mapfile -t all < <(scontrol show hostnames "$SLURM_JOB_NODELIST")  # also those that Slurm took away
    nodes=()
    for node in "${all[@]}"; do
      if grep -qxF "$node" <<< "$left_out"; then
        lost_twice+=("$node")
      elif grep -qxF "$node" <<< "$answers"; then
        nodes+=("$node")
      else
        silent+=("$node")
      fi
    done
    if [[ ${#nodes[@]} -gt 0 ]]; then
      for node in "${lost_twice[@]}"; do
        say "$node is left out: it was lost twice"
      done
    elif [[ ${#lost_twice[@]} -gt 0 ]]; then  # there are no others, and job.failures ends what leads to nothing
      mapfile -t nodes < <(printf '%s\n' "${lost_twice[@]}" | grep -xF "$answers")
    fi
    [[ ${#silent[@]} -eq 0 ]] || say "$(printf '%s\n' "${silent[@]}" | listed) cannot be reached"
    name_drained
  fi
  until ranks_fit; do
    unset "nodes[-1]"
  done
  if [[ ${#nodes[@]} -lt $fewest_nodes || ${#nodes[@]} -eq 0 ]]; then
    say "${#nodes[@]} nodes are left, $fewest_nodes are needed: the job waits for all of its nodes"
    again=yes
    return 1
  fi
  if [[ ${#nodes[@]} -lt $SLURM_JOB_NUM_NODES ]]; then
    say "goes on on ${#nodes[@]} of $SLURM_JOB_NUM_NODES nodes: ${nodes[*]}"
  fi
}

# Prints the nodes on standard input that can start a task. One step asks all of them. A lost relay in
# Slurm's tree of messages also silences live nodes behind it, so silent nodes are asked one by one.
ask() {
  local nodes answers
  local step=(timeout -k 5 30 srun --no-kill --overlap --job-name=ask --mpi=none --gres=none)
  # shellcheck disable=SC2016
  local name=(bash -c 'echo "$SLURMD_NODENAME"')
  nodes=$(cat)
  answers=$("${step[@]}" --nodes="$(wc -l <<< "$nodes")" --ntasks="$(wc -l <<< "$nodes")" \
    --nodelist="$(paste -sd, <<< "$nodes")" "${name[@]}" < /dev/null 2> /dev/null)
  echo "$answers"
  grep -vxF "$answers" <<< "$nodes" | xargs -r -P 32 -I{} \
    "${step[@]}" --nodes=1 --ntasks=1 --nodelist={} "${name[@]}" 2> /dev/null
}

# Slurm drains a node whose tasks do not end when they are killed (UnkillableStepTimeout), for example
# tasks that nobody can reach. Reports the nodes that were drained for this since the job's first failure.
name_drained() {
  local since nodes
  since=$(sed -n '1s/.*"time":\([0-9]*\).*/\1/p' <<< "$failures")
  [[ -n $since ]] || return
  nodes=$(sinfo -h -N -p "$SLURM_JOB_PARTITION" -t drain -o '%N|%H|%E' 2> /dev/null |
    awk -F'|' -v since="$(date -d "@$since" +%FT%T)" '$3 ~ /^Kill task failed/ && $2 >= since { print $1 }' | sort -u)
  [[ -z $nodes ]] || say "$(listed <<< "$nodes"): drained by Slurm (Kill task failed); an administrator" \
    "brings them back: scontrol update state=resume nodename=$(paste -sd, <<< "$nodes")"
}

# Prints the nodes to blame: nodes of the step that no longer answer, or else those that the cause names.
culprits() {
  local lost named
  lost=$(printf '%s\n' "${nodes[@]}" | grep -vxF "$answers")
  named=$(printf '%s\n' "${nodes[@]}" | grep -owF -f - <(echo "$cause") | sort -u)
  if [[ -n $lost ]]; then
    echo "$lost"
  elif [[ $cause == *" cannot be reached from "* ]]; then
    printf '%s\n' "${nodes[@]}" | grep -xF "$(out_of_reach "$cause")"
  elif [[ $cause != *CANCELLED* && $cause != *"connection to rank"* && $(wc -l <<< "$named") -eq 1 ]]; then
    echo "$named"
  fi
}

note_failure() { write_failure "$1" "${cause#trireme: }" "$(culprits | xargs)"; }
# FOLDER WHAT NODES: writes a failure to events.jsonl.
write_failure() {
  write_event "$1" failure "${2:-the step ended with 76}" ",\"nodes\":\"$3\",\"job\":\"$job\"$(job_times)"
}
# Prints when the job was queued and started, as fields of an event.
job_times() {
  [[ -z $TRIREME_JOB_SUBMITTED ]] || printf ',"submitted":%s' "$TRIREME_JOB_SUBMITTED"
  [[ -z $TRIREME_JOB_STARTED ]] || printf ',"job_started":%s' "$TRIREME_JOB_STARTED"
}
# FOLDER KIND WHAT MORE: appends a line to events.jsonl. Fails if there is no such file, since the run has not
# begun, or if it cannot be written.
write_event() {
  local step
  [[ -n $(read_run ls -d "$1/events.jsonl") ]] && step=$(last_step "$1") || return 1
  # Keeps only characters that need no escape in JSON.
  printf '{"time":%s,"step":%s,"event":"%s","detail":"%s"%s}\n' "$(date +%s.%3N)" "$step" "$2" \
    "$(tr -cd '[:alnum:] _.,:;()/*=+-' <<< "$3")" "$4" >> "$1/events.jsonl"
}
# The following three print 0 or nothing where the run has not begun, and fail if its files cannot be read.
last_step() {
  local end step
  end=$(read_run tail -c 4096 "$1/metrics.jsonl") || return
  step=$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' <<< "$end" | tail -n 1)
  echo "${step:-0}"
}
failures_of_job() {
  local events
  events=$(read_run cat "$1/events.jsonl") || return
  grep "\"event\":\"failure\".*\"job\":\"$job\"" <<< "$events" || true
}
failures_in_a_row() {
  local events
  events=$(read_run cat "$1/events.jsonl") || return
  awk -v own="\"job\":\"$job\"" '
    /"event":"(checkpoint|delivered)"/ { count = 0 }
    /"event":"failure"/ && index($0, own) { ++count }
    END { print count + 0 }' <<< "$events"
}
# COMMAND... FILE: prints what a command says of a file of the run folder, and nothing where there is no such file.
# A file that cannot be read is not absent: a line says why, and the status is 1. What servers of file systems say
# when they come and go is tried again for as long as trireme does so.
read_run() {
  local fault copy patience=${TRIREME_FILE_PATIENCE:-30} until
  until=$((SECONDS + 10#0${patience%%.*}))
  copy=$(mktemp) || return
  until fault=$(LC_ALL=C "$@" 2>&1 > "$copy"); do
    [[ $fault != *": No such file or directory" ]] || break
    if [[ $fault != *": Input/output error" && $fault != *": Stale file handle" || $SECONDS -ge $until ]]; then
      say "${!#} cannot be read: ${fault##*: }"
      rm -f "$copy"
      return 1
    fi
    sleep 1
  done
  cat "$copy"
  rm -f "$copy"
}

# The job survives the loss of its first node (--no-kill), but this script does not. So up to three other
# nodes, far apart, request a new start of the job once Slurm has taken the first node away.
keep_watch() {
  local place watchers=()
  [[ $SLURM_JOB_NUM_NODES -gt 1 ]] || return
  trap : INT USR1 USR2 XCPU
  trap 'kill "${watchers[@]}"; exit' TERM
  for place in 1 2 3; do
    watch_from "$place" "$1" &
    watchers+=($!)
  done
  for place in "${watchers[@]}"; do
    while kill -0 "$place"; do
      wait "$place"
    done
  done
}
# PLACE FOLDER: keeps one watcher running, on another node if its own is lost.
watch_from() {
  local node asked=
  trap : INT USR1 USR2 XCPU
  trap '[[ -z $asked ]] || kill "$asked"; exit' TERM
  while node=$(job_nodes | far_apart | sed -n "$1p") && [[ -n $node ]]; do
    srun --overlap --job-name=watch --mpi=none --gres=none --nodes=1 --ntasks=1 --nodelist="$node" bash -c "
      $(declare -f say listed field shown_of_job write_failure job_times write_event requeued last_step read_run watch_host)
      job=$job; watch_host $1 $SLURMD_NODENAME ${SLURM_RESTART_COUNT:-0} \"\$0\" $(job_nodes | xargs)" "$2" &
    asked=$!
    while kill -0 "$asked"; do
      wait "$asked"
    done
    sleep 5
  done
}
# PLACE HOST START FOLDER NODE...: runs on a watcher. If Slurm has taken nodes from this start of the job,
# the script's host among them, requeues the job and names the nodes in its log and in events.jsonl. The
# first watcher acts at once, the others only if it does not.
# shellcheck disable=SC2317
watch_host() {
  local place=$1 host=$2 start=$3 folder=$4 seen=0 lost told
  shift 4
  trap '' INT USR1 USR2 XCPU
  while sleep 20; do
    told=$(shown_of_job)
    [[ $(field JobState "$told") == RUNNING ]] || continue
    [[ $(field Restarts "$told") == "$start" ]] || exit
    lost=$(printf '%s\n' "$@" | grep -vxF "$(scontrol show hostnames "$(field NodeList "$told")")")
    grep -qxF "$host" <<< "$lost" || continue
    [[ $((++seen)) -ge $place ]] || continue
    # Slurm ends the watchers when it requeues the job. Only this watcher ignores the first signal, because
    # Slurm drains the node of a step that ends late and cannot tell its srun on the lost host.
    trap '' TERM
    if scontrol requeue "$job"; then
      say "$(listed <<< "$lost") cannot be reached: $SLURMD_NODENAME has the job queued again" 2>> "$(field StdOut "$told")"
      write_failure "$folder" "$(listed <<< "$lost") cannot be reached" "$(xargs <<< "$lost")"
      write_event "$folder" requeue "$(requeued "$folder")"
      exit
    fi
    trap - TERM
  done
}

# Prints up to three of the nodes on standard input. Each is the one farthest from this host and from the
# ones before it. Nodes are near if they share many switches, and then if they are close in the list.
far_apart() {
  local nodes switch members
  nodes=$(cat)
  {
    echo "$nodes"
    scontrol show topology 2> /dev/null | sed -n 's/^SwitchName=\([^ ]*\) .* Nodes=\([^ ]*\).*/\1 \2/p' |
      while read -r switch members; do
        scontrol show hostnames "$members" | sed "s/^/$switch /"
      done
  } | awk -v host="$SLURMD_NODENAME" '
    NF == 1 { name[++count] = $1 }
    NF == 2 { below[$2, $1] = 1; ++size[$1] }
    function in_common(a, b, of, common) {
      common = 0
      for (of in size) common += ((a, of) in below) && ((b, of) in below)
      return common
    }
    END {
      for (i = 1; i <= count; ++i) if (name[i] == host) chosen[++many] = i
      if (!many) chosen[++many] = 0
      while (many > 0 && many < 4) {
        best = 0
        for (i = 1; i <= count; ++i) {
          near = 0; gap = count
          for (k = 1; k <= many; ++k) {
            if (chosen[k] == i) near = -1
            if (near < 0) break
            common = in_common(name[i], name[chosen[k]])
            if (common > near) near = common
            away = i > chosen[k] ? i - chosen[k] : chosen[k] - i
            if (away < gap) gap = away
          }
          if (near >= 0 && (!best || near < best_near || (near == best_near && gap > best_gap))) {
            best = i; best_near = near; best_gap = gap
          }
        }
        if (!best) break
        print name[best]
        chosen[++many] = best
      }
    }'
}

# FOLDER: prints "stopped at step N, requeued"; without the step where it is not known.
requeued() {
  local step
  [[ -z $1 ]] || ! step=$(last_step "$1") || printf 'stopped at step %s, ' "$step"
  echo requeued
}

# Says in the log, events.jsonl, `trireme top` and the report that the job is requeued, which is not an
# error. Call it before the requeue, because Slurm then ends this script.
tell_requeue() {
  local what
  what=$(requeued "$run")
  [[ $again == no ]] || what+=" to wait for all of its nodes"
  say "$what"
  write_event "$run" requeue "$what" || return
  timeout -k 1 3 @TRIREME@ top "$run" --html "$run/report.html" > /dev/null 2>&1
}

# Slurm's word for it. The controller may be busy or just being started again.
state_of_job() {
  local told=''
  for _ in 1 2 3; do
    told=$(told_of_job %T) && [[ -n $told ]] && break
    sleep 1
  done
  echo "$told"
}

# STATUS: whether the job asks for another start.
starts_again() { [[ $1 -eq 75 || $again == yes ]]; }

# Ends the job with a status. If it is 75, or if nodes are missing, requests another start of the job,
# which continues from the checkpoint.
end_job() {
  local most=@RESTARTS@ state
  [[ -z $watch ]] || kill "$watch" 2> /dev/null
  if starts_again "$1"; then
    if [[ ${SLURM_RESTART_COUNT:-0} -ge $most ]]; then
      say "the job was started again $SLURM_RESTART_COUNT times already (job.restarts)"
    else
      # Does not requeue a job that ends for another reason: whoever cancels it wants it to end.
      state=$(state_of_job)
      if [[ $state == RUNNING ]]; then
        tell_requeue
        scontrol requeue "$job" || say "Slurm did not requeue the job: submit it again to continue"
      elif [[ -z $state ]]; then
        say "Slurm does not say whether the job is still wanted: submit it again to continue"
      fi
    fi
  fi
  exit "$1"
}
