#!/bin/bash
# Several hosts on one machine, without root: each has its own user, network, UTS, mount and IPC namespace, a name (host0,
# host1, ...), shared memory, and an address on a bridge that joins them. All processes end with the command.
#
#   tests/cluster/hosts.sh N COMMAND...      runs COMMAND on host0; its exit status
#
# mpirun starts its daemons through $FSDPC_HOSTS/agent, so `mpirun --host host0:2,host1:2` works unchanged. For the command:
#   $FSDPC_HOSTS/agent HOST COMMAND          runs a shell command on a host
#   $FSDPC_HOSTS/link HOST up|down           connects or cuts a host
set -eu

if [[ -z ${FSDPC_HOSTS_INSIDE:-} ]]; then
  FSDPC_HOSTS_INSIDE=1 exec unshare -Urnm -pf --mount-proc --kill-child "$0" "$@"
fi
unset FSDPC_HOSTS_INSIDE
count=$1 && shift
export FSDPC_HOSTS
FSDPC_HOSTS=$(mktemp -d)
trap 'rm -rf "$FSDPC_HOSTS"' EXIT

ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
echo "127.0.0.1 localhost" >"$FSDPC_HOSTS/names"
for ((i = 0; i < count; i++)); do
  echo "10.77.0.$((i + 1)) host$i" >>"$FSDPC_HOSTS/names"
done

for ((i = 0; i < count; i++)); do
  unshare -nmui bash -c 'echo $$ >"$1.new" && mv "$1.new" "$1" && exec sleep infinity' host "$FSDPC_HOSTS/host$i" &
  until [[ -s $FSDPC_HOSTS/host$i ]]; do sleep 0.01; done
  process=$(<"$FSDPC_HOSTS/host$i")
  ip link add "port$i" type veth peer name eth0 netns "$process"
  ip link set "port$i" master bridge0 up
  nsenter -t "$process" -n -m -u -i bash -c "hostname host$i && ip link set lo up && ip addr add 10.77.0.$((i + 1))/24 dev eth0 &&
    ip link set eth0 up && mount --bind '$FSDPC_HOSTS/names' /etc/hosts && mount -t tmpfs shm /dev/shm"
done

cat >"$FSDPC_HOSTS/agent" <<'AGENT'
#!/bin/bash
host=$1 && shift
exec nsenter -t "$(<"$(dirname "$0")/$host")" -n -m -u -i bash -c "$*"
AGENT
cat >"$FSDPC_HOSTS/link" <<LINK
#!/bin/bash
exec nsenter -t $$ -n ip link set "port\${1#host}" "\$2"
LINK
chmod +x "$FSDPC_HOSTS/agent" "$FSDPC_HOSTS/link"

export OMPI_MCA_plm_rsh_agent=$FSDPC_HOSTS/agent
nsenter -t "$(<"$FSDPC_HOSTS/host0")" -n -m -u -i --wd "$@"
