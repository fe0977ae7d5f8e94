#!/usr/bin/env bash
# A browser and a judge of accessibility: prints where Chromium is and where axe.min.js is, a line each. Chromium is the
# machine's own or Debian's (installed when root has none); axe-core is npm's, of one version and digest.
set -euo pipefail
axe_version=4.14.1
axe_sha256=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
home=${KAFKALOG_CONSOLE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalog-console}

mkdir -p "$home"
exec 9>"$home/.lock"; flock -w 600 9
if ! command -v chromium >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  install=(apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 chromium fonts-dejavu-core)
  "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq >&2; "${install[@]}" >/dev/null; }
fi
axe=$home/axe-core-$axe_version/axe.min.js
if [[ ! -f $axe ]]; then
  unpacked=$(mktemp -d -p "$home")
  trap 'rm -rf "$unpacked"' EXIT
  cd -- "$unpacked"
  tar -xzf "$(npm pack --silent "axe-core@$axe_version")"
  sha256sum --check --quiet <<<"$axe_sha256  package/axe.min.js" >&2
  mkdir -p -- "${axe%/*}"
  mv package/axe.min.js "$axe"
fi
command -v chromium
echo "$axe"
