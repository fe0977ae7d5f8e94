#!/usr/bin/env bash
# Debian's Prometheus as a yardstick: prints the directory that holds prometheus and promtool, the machine's own or
# those of the package, which is unpacked and not installed: no service is started, no port taken.
set -euo pipefail
home=${KAFKALOG_PROMETHEUS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalog-prometheus}

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname -- "$(command -v prometheus)"
  exit
fi
mkdir -p "$home"
exec 9>"$home/.lock"; flock -w 600 9
if [[ ! -f $home/ready ]]; then
  cd -- "$home"
  apt-get download -qq prometheus >&2 || { apt-get update -qq >&2; apt-get download -qq prometheus >&2; }
  dpkg -x prometheus_*.deb .
  rm prometheus_*.deb
  touch ready
fi
echo "$home/usr/bin"
