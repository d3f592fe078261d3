# checkpoint_resumed.sh NAME RANKS [fsdpc options]: a run without interruption, and one that goes on from its second
# checkpoint, must end with the same bits. Uses $program, $options, $steps and $interval, which leaves four checkpoints.
set -e
name=$1 ranks=$2
shift 2
$program $name mnist_cnn $ranks --train_mode train --optimizer adamw --lr 1e-3 --max_norm 1 "$@"
eval mpirun -n $ranks $name/train $options $steps --save_model $name.whole
save="$options $steps --log $name.jsonl --checkpoint_folder $name.saved --checkpoint_interval $interval --keep_latest_k 0 --save_model $name.parts"
eval mpirun -n $ranks $name/train $save
cmp $name.whole $name.parts
rm -r $(ls -d $name.saved/step-* | tail -n 2)
eval mpirun -n $ranks $name/train $save --resume auto
cmp $name.whole $name.parts
