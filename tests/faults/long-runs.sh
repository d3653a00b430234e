#!/usr/bin/env bash
# The long runs of docs/reliability.md, all dimensions each: redis, cluster, mixed; all three if none is named.
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A RUNS=(
  [redis]="--seed 50 --hot redis"
  [cluster]="--seed 51 --hot redis-cluster"
  [mixed]="--seed 52 --hot redis --mixed 2783eb4"
)

for name in "${@:-redis}"; do
  if [ -z "${RUNS[$name]:-}" ]; then
    echo "there is no long run $name: redis, cluster or mixed" >&2
    exit 2
  fi
done
[ $# -gt 0 ] || set -- redis cluster mixed
for name in "$@"; do
  # shellcheck disable=SC2086
  npm run --silent faults -- ${RUNS[$name]} --minutes 15 --more 10
done
