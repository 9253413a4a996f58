# shellcheck shell=bash
# Inlined into every job script by `trireme job`: runs steps, and says what becomes of the job.

# A signal that reaches this shell must not end it before it has seen what became of the step.
trap : TERM USR1

# run_step SRUN_OPTION... -- COMMAND...: on all tasks of the job, or on those that the options name.
# Returns the step's status, and 76 where the launcher killed it; then one line says where.
run_step() {
  local srun_options=() errors status
  while [[ $1 != -- ]]; do
    srun_options+=("$1")
    shift
  done
  shift
  errors=$(mktemp)
  # Standard error passes through, and is kept for what srun says of tasks that were killed.
  {
    srun -K1 --mpi=@MPI@ --cpus-per-task=@CPUS_PER_TASK@ "${srun_options[@]}" "$@" 2>&1 >&3 3>&- |
      tee "$errors" >&2
    status=${PIPESTATUS[0]}
  } 3>&1
  if [[ $status -ge 128 ]]; then
    say_who_died "$status" "$errors"
    status=76
  fi
  rm -f "$errors"
  return "$status"
}

# The first task that srun reports as killed is the cause; it then kills the others itself. Silent
# where a rank has named the cause already.
say_who_died() {
  local line
  if grep -qE '^trireme: .*(rank|host)' "$2"; then
    return
  fi
  line=$(grep -m1 -E 'Killed|Node failure|NODE FAILURE|Segmentation|Aborted|Bus error|Terminated|CANCELLED' \
    "$2")
  echo "trireme: the step was killed, status $1, before a rank could speak: ${line:-srun named no task}" >&2
}

# Ends the job: 75 asks for another run of it, which goes on from the checkpoint; every other status
# is the job's own.
end_job() {
  local most=@RESTARTS@
  if [[ $1 -eq 75 ]]; then
    if [[ ${SLURM_RESTART_COUNT:-0} -ge $most ]]; then
      echo "trireme: the job was started again $SLURM_RESTART_COUNT times already (job.restarts)" >&2
    else
      scontrol requeue "$SLURM_JOB_ID"
    fi
  fi
  exit "$1"
}
