# checkpoint_layout.sh FOLDER RANKS [fsdpc options]: another program loads the checkpoint `saved`, takes no step, and saves.
# Uses $program and $options. Its weights must be those of two.safetensors.
set -e
folder=$1 ranks=$2
shift 2
$program $folder gpt2_tiny $ranks "$@"
mpirun -n $ranks $folder/train $options --steps 3 --resume saved --checkpoint_folder of_$folder --save_model $folder.safetensors
cmp $folder.safetensors two.safetensors
# One step, whose log has the memory of the copy.
mpirun -n $ranks $folder/train $options --steps 1 --checkpoint_folder first_$folder --log $folder.jsonl
