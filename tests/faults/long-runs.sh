#!/usr/bin/env bash
# The long runs of docs/reliability.md, some 18 minutes of faults each: redis, cluster, mixed; all three if none is named.
# redis and cluster have every dimension. mixed has main only: release 0.1.0 has the bugs that the others were made for.
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A RUNS=(
  [redis]="--seed 50 --hot redis --minutes 8 --more 4"
  [cluster]="--seed 51 --hot redis-cluster --minutes 8 --more 4"
  [mixed]="--seed 52 --hot redis --mixed 2783eb4 --dimensions main --minutes 14 --more 3"
)

[ $# -gt 0 ] || set -- redis cluster mixed
for name in "$@"; do
  if [ -z "${RUNS[$name]:-}" ]; then
    echo "there is no long run $name: redis, cluster or mixed" >&2
    exit 2
  fi
done
for name in "$@"; do
  # shellcheck disable=SC2086
  npm run --silent faults -- ${RUNS[$name]}
done
