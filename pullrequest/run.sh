#!/usr/bin/env bash
# Runs `kube-sync test`, `analyze` and `plan` on the edit that is checked out, and writes what they
# find to the folder $PR_REPORTS: for each NAME its output (NAME.txt, plan.md), its messages
# (NAME.log), its exit status (NAME.status), and NAME.sarif; for tests also test.xml (JUnit).
#
# PR_POLICIES   files and folders of policies, separated by space
# PR_SCENARIOS  files and folders of scenarios, likewise; empty: no tests
# PR_EXPORT     what `kube-sync export` printed; empty: no plan
# PR_CONFIG     the configuration file; empty: the defaults
# PR_OPTIONS    more options of `kube-sync plan`, as `--instead`
# PR_MAX_WHOLE  how many fields policies may read whole; empty: any number
# PR_FAIL_ON    problems (default): what breaks a workload; changes: any change, too; never
set -euo pipefail

reports=${PR_REPORTS:-kube-sync-reports}
# The configuration may be the pull request's own: no program that it names is run.
export KUBE_SYNC_OPA_BINARY=${KUBE_SYNC_OPA_BINARY:-opa}
config=()
[ -z "${PR_CONFIG:-}" ] || config=(--config "$PR_CONFIG")
failed=()

# report NAME FILE ARGUMENT…: run `kube-sync NAME`, and keep what it prints
report() {
    local name=$1 file=$2 status=0
    shift 2
    kube-sync "$name" "${config[@]}" --sarif "$reports/$name.sarif" "$@" \
        >"$reports/$file" 2>"$reports/$name.log" || status=$?
    echo "$status" >"$reports/$name.status"
    [ -z "${GITHUB_OUTPUT:-}" ] || echo "$name-status=$status" >>"$GITHUB_OUTPUT"
    echo "kube-sync $name: exit status $status"
    if [ "$status" -ne 0 ] && { [ "$name" != plan ] || [ "$status" -ne 2 ] || [ "${PR_FAIL_ON:-}" = changes ]; }; then
        failed+=("$name")
    fi
}

rm -rf "$reports"
mkdir -p "$reports"
[ -z "${GITHUB_OUTPUT:-}" ] || echo "reports=$reports" >>"$GITHUB_OUTPUT"
read -rd '' -a policies <<<"${PR_POLICIES:-}" || true # it ends with no zero byte
read -rd '' -a scenarios <<<"${PR_SCENARIOS:-}" || true

if [ ${#scenarios[@]} -gt 0 ]; then
    report test test.txt "${scenarios[@]}" --junit "$reports/test.xml"
fi
# It reads Rego alone; manifests are analysed by the plan.
if [ ${#policies[@]} -gt 0 ] &&
    [ -n "$(find "${policies[@]}" -name '*.rego' ! -name '*_test.rego' ! -path '*/.*' -print -quit)" ]; then
    whole=()
    [ -z "${PR_MAX_WHOLE:-}" ] || whole=(--max-whole "$PR_MAX_WHOLE")
    report analyze analyze.txt "${policies[@]}" "${whole[@]}"
fi
if [ -n "${PR_EXPORT:-}" ]; then
    candidates=()
    for file in "${policies[@]}"; do candidates+=(-f "$file"); done
    read -ra options <<<"${PR_OPTIONS:-}"
    report plan plan.md --from "$PR_EXPORT" "${candidates[@]}" "${options[@]}" -o markdown
fi

if [ ${#failed[@]} -gt 0 ] && [ "${PR_FAIL_ON:-}" != never ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
