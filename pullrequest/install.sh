#!/usr/bin/env bash
# Makes an environment with kube-sync from this checkout in $PR_HOME, and with OPA unless one is on
# PATH. Prints the folder of the programs; GitHub's later steps have it on their PATH.
#
# PR_OPA_URL, PR_OPA_SHA256: another OPA than the one of the version in tools/go.mod, and its digest;
# without a digest, the one that is published beside the program counts.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
home=${PR_HOME:-${RUNNER_TEMP:-/tmp}/kube-sync}

# -I: nothing of the folder that is checked out is imported.
python3 -I -m venv "$home"
pip=("$home/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" --require-hashes --only-binary=:all: -r "$root/requirements.lock"
"${pip[@]}" --require-hashes --only-binary=:all: -r "$root/requirements-build.lock"
"${pip[@]}" --no-deps --no-build-isolation "$root"

if ! command -v opa >/dev/null; then
    version=$(sed -n 's/^\s*github.com\/open-policy-agent\/opa v\([0-9.]*\).*/\1/p' "$root/tools/go.mod")
    case $(uname -m) in
    aarch64 | arm64) machine=arm64 ;;
    *) machine=amd64 ;;
    esac
    releases=https://github.com/open-policy-agent/opa/releases/download
    url=${PR_OPA_URL:-$releases/v$version/opa_linux_${machine}_static}
    "$home/bin/python" -I - "$url" "$home/bin/opa" "${PR_OPA_SHA256:-}" <<'END'
import hashlib, pathlib, sys, urllib.request
url, target, expected = sys.argv[1:]
def get(url):
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read()
program, expected = get(url), expected or get(url + ".sha256").decode().split()[0]
if hashlib.sha256(program).hexdigest() != expected:
    sys.exit(f"{url}: its SHA-256 is not {expected}")
pathlib.Path(target).write_bytes(program)
pathlib.Path(target).chmod(0o755)
END
fi

if [ -n "${GITHUB_PATH:-}" ]; then
    echo "$home/bin" >>"$GITHUB_PATH"
fi
echo "$home/bin"
