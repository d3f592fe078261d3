#!/bin/bash
# two_ranks.sh [--stop_second LOG] TRAIN OPTIONS...: two processes on device 0, as if on two hosts. NCCL refuses two ranks of one
# host on one device, and identifies a host by NCCL_HOSTID. Status 77 if NCCL still does not allow it.
# --stop_second: stops the second process as soon as the run's LOG has a step, as a host that hangs does; the status is the first one's.
set -u
log=''
[[ $1 == --stop_second ]] && log=$2 && shift 2
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 NCCL_HOSTID=host$rank NCCL_SOCKET_IFNAME=lo FSDPC_RENDEZVOUS=file:$meeting/meeting \
    "$@" >"$meeting/log.$rank" 2>&1 &
  ranks[rank]=$!
done
status=0
if [[ -n $log ]]; then
  until grep -qs '"step":' "$log" || ! kill -0 "${ranks[0]}" 2>/dev/null; do sleep 0.1; done
  if ! kill -STOP "${ranks[1]}" 2>/dev/null; then
    kill -KILL "${ranks[0]}"
    cat "$meeting"/log.*
    echo "the second process did not run on" # the emulated device: all ranks are threads of the first one
    exit 77
  fi
  wait "${ranks[0]}" || status=$?
  kill -KILL "${ranks[1]}"
else
  for rank in 0 1; do
    wait "${ranks[rank]}" || status=$?
  done
fi
cat "$meeting"/log.*
if ((status)) && grep -qi "duplicate gpu\|invalid usage" "$meeting"/log.*; then
  echo "NCCL does not allow two ranks on this device"
  exit 77
fi
exit "$status"
