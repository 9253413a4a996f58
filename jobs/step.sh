# shellcheck shell=bash
# Inlined into every job script by `trireme job`: runs steps, goes on where ranks or nodes were lost,
# and says what becomes of the job. README.md beside this file describes what users see of it.

# A signal that reaches this shell must not end it before it has seen what became of the step.
trap : TERM USR1

# What trireme would set itself, by starting itself anew (src/cli/openmp_waiting.h): on many ranks that
# is half of the time it takes to load.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

say() { echo "trireme: $*" >&2; }
again=no  # whether the job shall be started again, whatever its status
watch=    # the process of keep_watch
# As commands name it: the number alone may mean all tasks of a job array.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}

# run_step SRUN_OPTION... -- COMMAND...: on all tasks of the job, or on those that the options name.
# Returns the step's status, and 76 where the launcher killed it; then one line says where. After 76
# $cause is what was said of it.
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
  # Standard error passes through, and is kept for what it says of tasks that were killed.
  {
    srun -K1 --wait=60 --overlap --job-name=step --mpi=@MPI@ --cpus-per-task=@CPUS_PER_TASK@ \
      "${srun_options[@]}" "$@" 2>&1 >&3 3>&- | tee "$errors" >&2
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

# srun waits for ever for tasks of which nobody can tell it any more: their slurmstepd was killed, or
# their node is out of reach. A while after the first task has ended, the whole step is ended.
end_what_is_lost() {
  local grace step
  trap : USR1 TERM
  until grep -qE '^srun: .*(task|Task|Node|NODE|Terminating|aborted)' "$1"; do
    sleep 1
  done
  grace=$(scontrol show config 2> /dev/null | sed -n 's/^KillWait *= *\([0-9]*\) sec.*/\1/p')
  sleep $((${grace:-30} + 10))
  step=$(squeue -h -s -j "$job" -o '%i %j' | sort -t. -k2 -n |
    awk '$2 == "step" { last = $1 } END { print last }')
  [[ -z $step ]] || scancel "$step"
}

# The first that was said: by a rank, or by srun of the first task that was killed; the others srun
# kills itself, or they lost their connection to it. Slurm's own "CANCELLED" says least.
find_cause() {
  cause=$(grep -m1 -E '^trireme: .*(rank|host)|Killed|Node failure|NODE FAILURE|Segmentation|Aborted|Bus error|Out Of Memory|Terminated' "$1" ||
    grep -m1 -E 'CANCELLED|Exited with exit code|Communication' "$1")
}

# The nodes that the job has now; Slurm takes lost ones away. The job's first ones where it is silent.
job_nodes() {
  local nodes
  nodes=$(squeue -h -j "$job" -o %N 2> /dev/null)
  scontrol show hostnames "${nodes:-$SLURM_JOB_NODELIST}"
}

# run_to_end FOLDER SRUN_OPTION... -- COMMAND...: the step that trains in this run folder; where it
# ends with 76, again, on the nodes that are left. Returns the last one's status. What was lost is
# written into the folder's events.jsonl, and counted there, for it outlives this start of the job.
run_to_end() {
  local folder=$1 status nodes=() answers='' early=0
  shift
  keep_watch > /dev/null 2>&1 &
  watch=$!
  while :; do
    choose_nodes "$folder" || return 76
    run_step --nodes="${#nodes[@]}" --ntasks="$((${#nodes[@]} * tasks_per_node))" \
      --nodelist="$(IFS=, && echo "${nodes[*]}")" "$@"
    status=$?
    [[ $status -eq 76 ]] || return "$status"
    answers=$(job_nodes | ask)
    note_failure "$folder" || early=$((early + 1))
    if [[ $(failures_in_a_row "$folder") -ge $most_failures || $early -ge $most_failures ]]; then
      say "$most_failures failures in a row without a new checkpoint (job.failures): the job ends"
      return 76
    fi
  done
}

tasks_per_node=@TASKS_PER_NODE@
model_ranks=@MODEL_RANKS@    # of one replica: the ranks must be a multiple
fewest_nodes=@FEWEST_NODES@  # to go on with
most_failures=@FAILURES@     # in a row

# Sets nodes to those that the next step runs on. Until something was lost these are all of the job;
# then those that answer, without any that this job has lost twice.
choose_nodes() {
  local all left_out node
  mapfile -t all < <(job_nodes)
  nodes=("${all[@]}")
  if [[ -n $answers ]] || failures_of_job "$1" > /dev/null; then
    left_out=$(failures_of_job "$1" | sed -n 's/.*"nodes":"\([^"]*\)".*/\1/p' | tr ' ' '\n' |
      sort | uniq -c | awk '$1 >= 2 { print $2 }')
    answers=${answers:-$(job_nodes | ask)}
    nodes=()
    for node in "${all[@]}"; do
      if grep -qxF "$node" <<< "$left_out"; then
        say "$node is left out: it was lost twice"
      elif grep -qxF "$node" <<< "$answers"; then
        nodes+=("$node")
      else
        say "$node does not answer"
      fi
    done
  fi
  while [[ $((${#nodes[@]} * tasks_per_node % model_ranks)) -ne 0 ]]; do
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

# Those of the nodes that start a task within 30 s.
ask() {
  local node
  while read -r node; do
    timeout 30 srun --overlap --job-name=ask --mpi=none --gres=none --nodes=1 --ntasks=1 --nodelist="$node" \
      echo "$node" < /dev/null 2> /dev/null &
  done
  wait
}

# Who is to blame: nodes of the step that answer no more, otherwise the one that was named.
culprits() {
  local lost named
  lost=$(printf '%s\n' "${nodes[@]}" | grep -vxF "$answers")
  named=$(printf '%s\n' "${nodes[@]}" | grep -owF -f - <(echo "$cause") | sort -u)
  if [[ -n $lost ]]; then
    echo "$lost"
  elif [[ $cause != *CANCELLED* && $cause != *"connection to rank"* && $(wc -l <<< "$named") -eq 1 ]]; then
    echo "$named"
  fi
}

# One more line in events.jsonl; false where the run had not begun, and there is none.
note_failure() {
  local step text
  [[ -w $1/events.jsonl ]] || return 1
  step=$(tail -c 4096 "$1/metrics.jsonl" 2> /dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | tail -n 1)
  # Nothing that JSON would want escaped.
  text=$(tr -cd '[:alnum:] _.,:;()/*=+-' <<< "${cause#trireme: }")
  printf '{"time":%s,"step":%s,"event":"failure","detail":"%s","nodes":"%s","job":"%s"}\n' \
    "$(date +%s)" "${step:-0}" "${text:-the step ended with 76}" "$(culprits | xargs)" \
    "$job" >> "$1/events.jsonl"
}
failures_of_job() {
  grep -s "\"event\":\"failure\".*\"job\":\"$job\"" "$1/events.jsonl"
}
failures_in_a_row() {
  awk -v own="\"job\":\"$job\"" '
    /"event":"checkpoint"/ { count = 0 }
    /"event":"failure"/ && index($0, own) { ++count }
    END { print count + 0 }' "$1/events.jsonl" 2> /dev/null
}

# The job outlives its first node (--no-kill), but this script does not. So another node asks for a
# new start of the job once Slurm has taken the first one away.
keep_watch() {
  local node asked=
  trap : USR1
  trap '[[ -z $asked ]] || kill "$asked"; exit' TERM
  while [[ $SLURM_JOB_NUM_NODES -gt 1 ]]; do
    node=$(job_nodes | grep -vxF "$SLURMD_NODENAME" | head -n 1)
    [[ -n $node ]] || return
    # shellcheck disable=SC2016
    srun --overlap --job-name=watch --mpi=none --gres=none --nodes=1 --ntasks=1 --nodelist="$node" bash -c '
      trap "" USR1
      while sleep 20; do
        nodes=$(squeue -h -t RUNNING -j "$1" -o %N 2> /dev/null)
        if [[ -n $nodes ]] && ! scontrol show hostnames "$nodes" | grep -qxF "$0"; then
          scontrol requeue "$1"
          exit
        fi
      done' "$SLURMD_NODENAME" "$job" &
    asked=$!
    while kill -0 "$asked"; do
      wait "$asked"
    done
    sleep 5
  done
}

# Ends the job: 75, or nodes that are missing, ask for another start of it, which goes on from the
# checkpoint; every other status is the job's own.
end_job() {
  local most=@RESTARTS@
  [[ -z $watch ]] || kill "$watch" 2> /dev/null
  if [[ $1 -eq 75 || $again == yes ]]; then
    if [[ ${SLURM_RESTART_COUNT:-0} -ge $most ]]; then
      say "the job was started again $SLURM_RESTART_COUNT times already (job.restarts)"
    # Not a job that is ending for another reason: who cancels it wants it gone.
    elif [[ $(squeue -h -j "$job" -o %T) == RUNNING ]]; then
      scontrol requeue "$job"
    fi
  fi
  exit "$1"
}
