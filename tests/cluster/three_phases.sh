#!/bin/bash
# A run that loses a host: 4 ranks of two hosts train, one host dies, 2 ranks go on from the last checkpoint with the same
# global batch, then 4 ranks again. Prints the losses beside those of a run that nothing happens to.
#
#   tests/cluster/three_phases.sh FOLDER        needs build/fsdpc
set -eu
root=$(realpath "$(dirname "$0")/../..")
PATH=$root/tests/bin:$PATH
rm -rf "$1" && mkdir -p "$1" && cd "$1"
data=(--train_data "$root/samples/digits/train-*" --normalize 0.305,0.325 --shuffle --seed 4 --progress none --log_freq 1)
for ranks in 2 4; do
  "$root/build/fsdpc" "$root/samples/mnist_cnn/model.onnx" --world_size "$ranks" --micro_batch_size $((32 / ranks)) --loss nll \
    --optimizer adadelta --lr 1 -o "of_$ranks" >compile.txt
done

mpirun -n 4 of_4/train "${data[@]}" --steps 60 --log whole.jsonl --save_model whole.safetensors

cat >lose_a_host.sh <<'PHASE'
mpirun --host host0:2,host1:2 -n 4 of_4/train "$@" --steps 60 --log one.jsonl --train_timeout_seconds 5 \
  --checkpoint_folder saved --checkpoint_interval 5 --init_timeout_seconds 60 &
until ls saved 2>/dev/null | grep -Eq 'step-0+(15|20|25)$'; do sleep 0.02; done
"$FSDPC_HOSTS/link" host1 down
network=$(readlink "/proc/$(cat "$FSDPC_HOSTS/host1")/ns/net")
for process in /proc/[0-9]*; do
  [ "$(readlink "$process/ns/net")" != "$network" ] || kill -KILL "${process#/proc/}"
done
wait $! || echo "phase 1 ended: mpirun $?, checkpoints: $(ls saved | tr '\n' ' ')"
PHASE
"$root/tests/cluster/hosts.sh" 2 bash lose_a_host.sh "${data[@]}"
mpirun -n 2 of_2/train "${data[@]}" --steps 40 --log two.jsonl --checkpoint_folder saved --checkpoint_interval 10 --resume auto
mpirun -n 4 of_4/train "${data[@]}" --steps 60 --log three.jsonl --checkpoint_folder saved --checkpoint_interval 20 --resume auto \
  --save_model resumed.safetensors

/usr/bin/python3 - <<'PRINT'
import json
phases = {}
whole = {}
for name, losses in [("whole", whole)] + [(n, phases) for n in ("one", "two", "three")]:
    for line in map(json.loads, open(f"{name}.jsonl")):
        if "step" in line and "loss" in line:
            losses[line["step"]] = (line["loss"], name)
print("step  uninterrupted  three phases  phase")
for step in sorted(whole):
    if step % 5 == 0:
        print(f"{step:4}  {whole[step][0]:13.7f}  {phases[step][0]:12.7f}  {phases[step][1]}")
print("largest difference:", max(abs(whole[s][0] - phases[s][0]) / whole[s][0] for s in whole))
PRINT
