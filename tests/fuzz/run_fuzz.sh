#!/usr/bin/env bash
# run_fuzz.sh BINARY NAME SEEDS SECONDS: runs one fuzz target for so long, or for MOESTRO_FUZZ_SECONDS, its seeds first.
# Fails on a crash, a leak or a hang.
set -euo pipefail
binary=$1 name=$2 seeds=$3 seconds=${MOESTRO_FUZZ_SECONDS:-$4}
work=$(mktemp -d "fuzz-corpus-$name-XXXXXX")
trap 'rm -rf "$work"' EXIT
[ -d "$seeds" ] && cp -r "$seeds/." "$work"
exec_args=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
  -artifact_prefix="crash-$name-")
"$binary" "${exec_args[@]}" "$work" 2>&1 | tail -n 40
