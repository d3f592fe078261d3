#!/bin/bash
# two_ranks.sh TRAIN OPTIONS...: two processes on device 0, as if on two hosts. NCCL refuses two ranks of one host on one
# device, and identifies a host by NCCL_HOSTID. Status 77 if NCCL still does not allow it.
set -u
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 NCCL_HOSTID=host$rank NCCL_SOCKET_IFNAME=lo FSDPC_RENDEZVOUS=file:$meeting/meeting \
    "$@" >"$meeting/log.$rank" 2>&1 &
  ranks[rank]=$!
done
status=0
for rank in 0 1; do
  wait "${ranks[rank]}" || status=$?
done
cat "$meeting"/log.*
if ((status)) && grep -qi "duplicate gpu\|invalid usage" "$meeting"/log.*; then
  echo "NCCL does not allow two ranks on this device"
  exit 77
fi
exit "$status"
