#!/usr/bin/env bash
# Prints the command that renders a kustomization: kubectl's own, kustomize, or a kustomize that Go builds once.
set -euo pipefail
# The youngest that Debian 12's Go (1.19) builds.
version=v5.0.3
home=${KAFKALOG_KUSTOMIZE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalog-kustomize}/$version

if command -v kubectl >/dev/null && kubectl kustomize --help >/dev/null 2>&1; then
  echo "kubectl kustomize"
  exit
fi
if command -v kustomize >/dev/null; then
  echo "kustomize build"
  exit
fi
mkdir -p "$home"
exec 9>"$home/.lock"; flock -w 600 9
if [[ ! -x $home/kustomize ]]; then
  GOBIN=$home go install "sigs.k8s.io/kustomize/kustomize/v5@$version" >&2
fi
echo "$home/kustomize build"
