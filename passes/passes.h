// The catalogue of passes. Each has its contract here, one source file of the same stem, one line in pipeline.cpp and a
// test file.
#pragma once

#include "passes/pass.h"

namespace fsdpc {

// ---------------------------------------------------------------------------------------------------- graph

/// Evaluates nodes whose operands are all constants (result up to 2^20 elements) and merges equal constants.
/// Requires: graph stage. Ensures: no pure node has only constant operands, except large broadcasts and iotas.
/// First, so that everything after sees masks and shape arithmetic as plain constants.
extern const Pass foldConstants;

/// Brings the graph to one form: transposes of matmul operands become transpose flags, transposes and reshapes in a row
/// become one, x*1, x+0, double neg, cast to the same type, broadcast to the same shape and slices of everything
/// disappear.
///     %t = transpose %w {1,0}; %y = matmul %x, %t     ->     %y = matmul %x, %w transpose_b
/// Requires/ensures: graph stage. Before recognizePatterns, which then has fewer shapes to know.
extern const Pass canonicalize;

/// Merges pure nodes with equal op, attributes and operands (also reads of the same state).
extern const Pass eliminateCommon;

/// Replaces decomposed forms by the composite that has a derivative of its own: LayerNorm, RMSNorm, GELU (erf and
/// tanh), SiLU, rotary position embedding, softmax attention with its scale and mask (a constant mask that is causal
/// becomes `causal`), before autodiff, so that no S x S matrix is kept for backward. Transposes around attention are
/// absorbed into its layout, and keys that were copied for each query of a group are read where they were.
extern const Pass recognizePatterns;

/// Removes nodes without effect whose results are unused, in every function. States stay, read or not: parameters are
/// saved and scalars set by name.
extern const Pass eliminateDead;

/// Decides how parameters start that have no values (Parameter::hasValue) and of which nothing else says so, as
/// PyTorch's modules do, by what reads them:
///     weight of a product or convolution     uniform +-1/sqrt(fan_in)     fan_in: products that one result sums
///     added to such a result                 the same, by its fan_in
///     scale and shift of a norm, a factor    1, 0, 1; the slope of a PRelu 0.25
///     table of an embedding, added table     normal 0, 1
/// A table that a product reads too starts as that product's weight: normal 0, 1 would make its scores grow with the
/// square root of the width. Anything else starts at zero, and a remark names it.
///     parameter @w : f32[2,3] no_value     ->     parameter @w : f32[2,3] no_value initial(uniform -0.57, 0.57, ...)
/// Requires/ensures: graph stage; nodes stay as they are. Behind recognizePatterns, so that norms are seen as such;
/// before fuseBiases, so that a bias is an addend.
extern const Pass initializeParameters;

/// Convolutions that pad the two sides of an axis differently, where the target has no kernel for that: what both sides
/// have in common stays, zeros around x are the rest.
///     convolution %x, %w pads_after(1, 1)     ->     %p = pad %x after(0, 0, 1, 1); convolution %p, %w
/// A transposed one (convolution_grad_input) computes the larger result, and what was asked for is a slice of it.
/// Requires/ensures: graph stage. Before derivatives, which then have even pads too; behind canonicalize, to which both
/// forms are fine.
extern const Pass evenPads;

/// Sets batch_axis of every random_uniform to the axis where the values it meets have the batch, so that a sample's
/// dropout mask follows the sample and not its place in a rank. Where the batch shares an axis with others, the numbers
/// are made, and compared with the ratio, in a shape in which it does not:
///     %u = random_uniform : f32[6,4]; %d = less %u, %r     ->     %u = random_uniform batch_axis(0) : f32[2,3,4]
///                                                                %d.0 = less %u, %r.0; %d = reshape %d.0 : bool[6,4]
/// Where no axis has the batch, batch_axis is -1 and a remark says that the masks depend on the number of ranks.
/// Requires/ensures: graph stage. Every random_uniform from the import says 0. After the rewrites: patterns know
/// dropout in one shape.
extern const Pass keyRandomness;

/// Gives neighbouring elementwise nodes one shape: a node whose readers take it reshaped is computed in their shape,
/// and its operands are reshaped instead, up to a product, whose reshape costs nothing.
///     %b = broadcast %bias; %h = add %p, %b : f32[32,8]; %r = reshape %h : f32[4,8,8]; %y = add %r, %x
///     ->     %r = reshape %p : f32[4,8,8]; %b = broadcast %bias; %h = add %r, %b; %y = add %h, %x
/// Only where more neighbours meet than part. Broadcasts keep their source, so the reshape must leave the dims alone
/// that the source has; random numbers keep their shape.
/// Requires/ensures: graph stage. Derivatives then stand in one shape too, and fuseElementwise finds whole chains.
extern const Pass alignShapes;

/// Puts a unit on every node and parameter (planUnits in graph/unit_plan.h has the policies) and writes what the
/// options say of each: Module::units, Parameter::unit, Parameter::ignored. A unit's nodes stand together, so units may
/// have to be entered in another order than the model's. A module around other units has what is left of it as one
/// unit; what it does with that behind the inner ones stands in a section of its own, a unit without parameters named
/// .rest. A module that has units keeps them. Last in the graph stage: derivatives inherit the unit from the node they
/// come from.
extern const Pass assignUnits;

/// With --mixed_precision bf16 or fp16, or where units say so: the forward graph in the 16-bit type wherever a
/// parameter or a float input has a say. Parameters and their gradients stay f32; a parameter is rounded at each use,
/// another value once, also between units of different types; positions, masks and random numbers stay as they are, the
/// attention mask too; outputs are of outputDType. Constants are rounded here, numbers beyond the type's range to the
/// last one within; tables as bufferDType says, and with f32 what reads one is computed in f32 and rounded. Without
/// castForwardInputs a float input is rounded where it meets a parameter.
///     %y = matmul %x, %w : f32[4,8]     ->     %wc = cast %w : bf16[2,8]; %y = matmul %xc, %wc : bf16[4,8]
/// Requires/ensures: graph stage, units assigned. Before appendLoss, which reads logits as they were before they
/// became f32. Rounding happens where the types say; later passes never add or remove one.
extern const Pass insertCasts;

/// The product adds the vector that alone is added to it, before its sum is rounded: a pass over memory less, and in 16
/// bits a rounding less.
///     %p = matmul %x, %w : f32[4,8]; %b = broadcast %bias; %y = add %p, %b     ->     %y = matmul %x, %w, %bias
/// A reshape between product and addition that keeps the last dim stays behind the product. The product moves to where
/// the addition stood, so the bias may be defined between the two.
/// Requires/ensures: graph stage, units assigned; only where product and addition have one unit. Behind insertCasts, so
/// that it is this graph whose roundings count, and before derivatives, which know products with a bias.
extern const Pass fuseBiases;

// ---------------------------------------------------------------------------------------------------- train

/// Adds labels and sample_weight inputs and the loss: forward becomes micro_step (loss_sum, outputs), eval_step
/// (dropout off) and prologue (count = batch_sum of what counts). mean: loss = batch_sum(loss_sum) / count.
extern const Pass appendLoss;

/// Batch norms that train take the statistics of the batch, and move the running ones by them: once in micro_step,
/// whatever is computed again later, by PyTorch's rule (unbiased variance), averaged over the ranks.
///     %y = batch_norm %x, %w, %b, %rm, %rv training momentum(0.1)
///     ->     %mean, %var = batch_statistics %x; %y = batch_norm %x, %w, %b, %mean, %var
///            %all = batch_sum (%mean / N) ranks(N); write @rm (update_statistics %rm, %all momentum(0.1))
/// `synced` ones normalise with the statistics of the batch of all ranks: one batch_sum of mean and variance + mean^2,
/// in f64, whose derivative is one batch_sum too. In eval_step all take the running ones.
/// Requires/ensures: train stage, no `training` afterwards; running statistics of one norm each. Before differentiate:
/// the loss depends on x through the statistics too. Errors: one element in a channel; running statistics of two norms.
extern const Pass expandBatchStatistics;

/// Reverse-mode autodiff of micro_step's loss_sum with seed 1/count (mean) or 1 (sum), times @loss_scale if the options
/// have one, whose states it adds; one vjp per op. Every trainable parameter with a path to the loss gets `grad.<name>`
/// = batch_sum(local gradient) as a result. Parameters without a path stay untouched; frozen ones get no gradient.
/// Where gradients are sent in 16 bits (reduceDType, or the unit's own) the local gradient of an f32 parameter is
/// rounded first, once, and the sum is of that type:
///     %c = cast %local : bf16[2,8]; %grad.w = batch_sum %c : bf16[2,8]
extern const Pass differentiate;

/// batch_norm becomes elementwise nodes, computed in f32 and rounded at the end, so that what is beside it (relu, the
/// sum of a residual block, what its derivative adds up) is one loop with it.
///     %y = batch_norm %x, %w, %b, %mean, %var
///     ->     %y = (%x - broadcast %mean) * broadcast (%w * rsqrt(%var + epsilon)) + broadcast %b
/// Requires/ensures: train stage, no batch_norm afterwards. Behind differentiate: its derivative is its own.
extern const Pass expandBatchNorm;

/// A gradient that was summed, rounded to 16 bits and made f32 again is left in f32 as it was summed: products, sums
/// over the batch, scattered sums and the scales of norms become `wide`.
///     %g = matmul %x, %dy : bf16[2,8]; %gw = cast %g : f32[2,8]     ->     %gw = matmul %x, %dy wide : f32[2,8]
/// One that is sent in the 16 bits that it was summed into is left as it is, unless micro-steps add it up in f32
/// before:
///     %gw = cast %g : f32[2,8]; %s = cast %gw : bf16[2,8]     ->     %g
/// Requires/ensures: train stage. After differentiate; the product then writes what the reduction sends.
extern const Pass widenGradients;

/// A tensor read in parts has a sum of padded parts as derivative. Where the parts tile one axis they are put side by
/// side instead, also below reshapes; what else is added stays, in its order.
///     %pa = pad %a; %pb = pad %b; %s = add %pa, %pb     ->     %s = concat %a, %b
/// Requires/ensures: train stage. After differentiate, which makes these sums.
extern const Pass combineGradients;

/// With --deterministic world: computes each of the rank's B samples by nodes of its own and sums over samples in one
/// balanced binary tree, which the tree over ranks continues. The graph came for one sample (inputs [1, ...]); inputs
/// become [B, ...], sliced; results per sample are put side by side. What no sample enters stays one node. Samples take
/// turns section by section, so a unit is still gathered once; a sum takes each pair as soon as it is there.
///     %g = matmul %dy, %x; %t = batch_sum %g
///     ->     %g = matmul %dy, %x; %g.1 = matmul %dy.1, %x.1; %g.2 = add %g, %g.1; %t = batch_sum %g.2
/// Requires/ensures: train stage; B a power of two. Does nothing without the option. After differentiate, whose
/// derivatives are then those of one sample too; before the optimizer, which sees only sums.
extern const Pass splitSamples;

/// Adds update (optimizer on every parameter with a gradient), tap_gradients and export, and the optimizer's state.
/// With
/// --max_norm, --nonfinite skip or warn, or a loss scale, the update is guarded (support/update_guard.h):
///     %a = square_sum %grad.w, %grad.b; %norm, %scale, %finite = clip_norm %a, %loss, %max_norm bounded
///     %applied, ... = spike_guard %norm, %finite, ...
///     %n, ... = adam %w, %grad.w, ..., %scale, %applied guarded; return %norm, %applied
/// and state optimizer_step stands for step: steps that applied. A gradient that has been summed in 16 bits is made f32
/// for norm, optimizer and tap, unless keepLowPrecisionGrads leaves the first two to read it as it is.
extern const Pass appendOptimizer;

/// With --attention cudnn: attention and its derivative are marked `library` where Target::whyNotByLibrary has no
/// objection, and are then computed by the target's library; of the others a remark says why they are not.
///     %o, %lse = attention %q, %k, %v causal     ->     %o, %lse = attention %q, %k, %v causal library
/// Requires/ensures: train stage. Does nothing without the option. Who computes a node shows in its scratch and its
/// statement alone. After splitSamples, which decides how large a batch is; in the train stage because forward and
/// derivative exist from there on, and because the checker compares the nodes of this stage with the planned ones.
extern const Pass selectAttention;

/// Decides what backward finds of what forward computed: in units with activation_checkpointing, nodes that it reads
/// are marked save(recompute), unless the mode keeps them.
///     full:      nothing of a unit is kept but what it gives to others (Chen et al., arXiv 1604.06174)
///     selective: results of products, convolutions and attention are kept too
///     budget:    what takes the least time to compute again within activationMemoryBudget (train/saved_budget.h);
///                where activations may be offloaded, units whose part stays on the host say offload_activations(on)
///     %h = matmul %x, %w; %y = gelu %h     ->     %h = matmul %x, %w; %y = gelu %h save(recompute)
/// Never marked: collectives, and what would need one that backward does not need anyway (a frozen parameter that no
/// derivative reads); what other units or the runtime read; and the last run of forward, since backward begins right
/// behind it. Requires/ensures: train stage. Changes no value; the marks are choices that insertRecompute
/// carries out. Last of the stage: whoever changes nodes behind it would have to know the marks.
extern const Pass selectSaved;

// ---------------------------------------------------------------------------------------------------- sharded

/// Replaces parameter states by flat, padded, evenly split segments (shard/segments.h) and optimizer state by state of
/// the same layout, as each unit's row of the placement table says (shard/placement.h); makes the mesh. Gathers and
/// reductions appear in their obviously right form: a parameter's read becomes read + all_gather + view, the gradients
/// of a segment become one pack + reduce_scatter (+ all_reduce over replicas) at the function's end, scalar batch_sums
/// become all_reduce; a gradient is sent in the type that its batch_sum has; update works on whole shards, and a
/// guarded one sums squares over the ranks that a gradient is split over. What is whole on every rank (a segment
/// without `over`, a replica) is read where it lies, its gradients are all-reduced. One rank alone holds everything and
/// communicates nothing. With several micro-steps gradients and other sums over the batch are added to f32 accumulators
/// (shard/accumulators.h), rounded where they are sent; update, after summing over replicas and what units keep whole,
/// uses and clears. Where bits may not depend on the strategy, replicas are summed in every micro-step.
///     %w = read @fc.weight   ->   %s = read @u.p; %f = all_gather %s over(@shard); %w = view %f {offset}
/// Requires: train. Ensures: sharded, no state of role parameter.
extern const Pass shardState;

/// Carries out the marks of selectSaved: what is marked is computed again right before the first part of backward that
/// reads it, from what was kept, in a section of its own.
///     unit @a forward { %y = gelu %h save(recompute) }     ->     unit @a forward { %y = gelu %h }
///     unit @a backward { ... %y ... }                             unit @a recompute { %y.1 = gelu %h }
///                                                                 unit @a backward { ... %y.1 ... }
/// Random numbers are made again from the same key, so masks are equal; every other op gives the same bits for the same
/// operands. Requires/ensures: sharded stage, no frees; no marks afterwards. Behind shardState, so that the train stage
/// the checker compares with knows nothing of it; before sinkGathers, which gathers once for a section and what it
/// computes again.
extern const Pass insertRecompute;

/// Gives every unit's section its own gather: one all_gather right before the first use, one free right after the last,
/// so a unit is held only while it computes; units that live until backward get one gather for all sections. A segment
/// freed and gathered again with nothing gathered between is kept instead, from forward to backward only by default.
/// With a reshard group, this rank's part of it is kept and backward gathers within the group:
///     free %f   ->   %part = take_shard %f over(@reshard_2); free %f; ... %f.1 = all_gather %part over(@reshard_2)
/// After shardState, which gathered everything at once.
extern const Pass sinkGathers;

/// Moves each pack and the collectives that sum it up to right after the last of its gradients, and copies the parts
/// that cannot be computed where they lie in the pack (a gathered buffer, a view, the same value twice).
extern const Pass hoistReduceScatters;

/// The sum that a norm reads becomes part of the norm, and the sum that a norm's derivative goes into part of the
/// derivative, so that neither is a pass of its own over memory. Rounded as before: not a bit changes.
///     %s = add %x, %r; %y, %rstd = rms_norm %s, %g     ->     %y, %rstd, %s = rms_norm %x, %g, %r
///     %t, %dg = rms_norm_grad %dy, %s, %g, %rstd; %ds = add %d, %t     ->     %ds, %dg = rms_norm_grad ..., %rstd, %d
/// Within a section only. A sum stays where others read it before the norm, or another value adds to the derivative
/// too; where an operand is a broadcast, a constant or an elementwise value that nobody else reads: then it is a step
/// of fuseElementwise's loop; and where the target has no such kernel. Requires/ensures: sharded stage, no frees.
/// Before fuseElementwise, which takes every sum that is left.
extern const Pass fuseResiduals;

/// Elementwise chains become `fused` nodes: broadcasts, casts, constants and random numbers are absorbed, values used
/// by more than one fused node are results. Never changes where a value is rounded.
extern const Pass fuseElementwise;

// ---------------------------------------------------------------------------------------------------- async

/// Collectives become start followed at once by wait; every node gets its stream: reductions `comm`, or `reduce` where
/// they have a communicator of their own. Correct, no overlap.
extern const Pass splitCollectives;

/// Moves starts up and waits down: the next unit's gather starts before this unit computes (forward, and before this
/// unit's gradients in backward), as far ahead as the bound Decisions::maxInflightAllGathers on units held for one use
/// allows; reductions are waited for when the next one starts, since their buffer would be the third, and continue over
/// the replicas then; replicas are waited for at the end. A unit's own prefetch choices come before the module's.
extern const Pass scheduleComm;

/// With several micro-steps: what a micro-step adds to an accumulator is added as soon as it is there, instead of at
/// the end, so that its memory is free again.
///     %g = wait %r; ...; %s = add %acc, %g; write @u.p.grad %s     ->     %g = wait %r; %s = add %acc, %g; write ...;
///     ...
/// Requires/ensures: async stage. Behind scheduleComm, which puts the waits where they hold nothing up.
extern const Pass advanceAccumulation;

/// Moves the optimizer of each segment from update into micro_step, right behind the wait for its reduction and the
/// last reader of what it overwrites, so that it runs while other units' gradients are still on their way; a replica's
/// gather starts there too and is waited for at the end of the step. Gradients live no longer than their optimizer:
/// they are stashed for a tap, which costs nothing in a step that saves none.
///     micro_step: %g = wait %r               micro_step: %g = wait %r; stash @u.p %g; %n = adam %p, %g, ...; write
///     tap_gradients(%g): tap %g         ->   tap_gradients: %g = unstash @u.p; tap %g
///     update: %n = adam %p, %g; write        update:
/// Requires/ensures: async stage. Does nothing with several micro-steps, nor to a guarded update, which needs all
/// gradients first.
extern const Pass advanceUpdates;

/// Starts the first gather of a step in `update` of the step before: behind the write of its state, or first where
/// that has moved into micro_step. All gathered units are freed by then.
///     micro_step(%x): %f = all_gather.start %u.p; wait %f    ->   micro_step(%x, %next.u.p): wait %next.u.p
///     update: ...; write @u.p %n; return                          update: ...; write @u.p %n;
///                                                                 %g = all_gather.start %n; return %g
/// Requires/ensures: async stage. Nothing with several micro-steps, nor for a unit without forward prefetch.
extern const Pass carryFirstGather;

/// Inserts the copies between the device and its host that units and Decisions::offloadActivations ask for, each waited
/// for where it starts.
///
/// States that say `host` (shardState has marked them): what the device reads of one it reads from a copy, and what it
/// writes to one is copied there. An optimizer whose segment is on the host runs `on(host)`, over copies of what it
/// takes from the device; they are made where the values are, so that gradients leave the device at once.
///
///   before   %p = read @u.p; %f = all_gather.start %p
///   after    %p = read @u.p; %c = reload.start %p on(copy); %d = wait %c; %f = all_gather.start %d
///
/// Activations: what forward makes, backward reads and nobody needs for three runs of units or more. All of it where
/// the unit that makes it, or that reads it first in backward, has offload_activations(on); where the one that makes it
/// says nothing, the first made first, up to the share:
///
///   before   %x = ... (forward)  ...  use %x (backward)
///   after    %x = ...; %c = offload.start %x; %h = wait %c  ...  %b = reload.start %h; %y = wait %b; use %y
///
/// Requires/ensures: async stage. Behind every pass that places nodes, since what it inserts stands next to them;
/// before insertFrees, which then gives back what has left the device. Values do not change.
extern const Pass insertOffload;

/// Gives each copy time, so that one is under way while another one's data are used: starts of reloads go up, waits of
/// offloads down, until the target's prediction of what compute does meanwhile is twice that of the copies, which take
/// turns. At most to the beginning of the run before and the end of the run behind, and as far as what they copy, the
/// last write of the state and the first reader allow. Moves nodes only; nothing without overlap_comm.
/// Requires/ensures: async stage.
extern const Pass scheduleCopies;

/// Adds a free after the last use of every buffer that has none yet.
extern const Pass insertFrees;

// ---------------------------------------------------------------------------------------------------- planned

/// Gives every buffer a space and an offset from exact live ranges over all functions, states first; adds workspaces
/// and the ordering edges (`after`) that reuse across streams needs.
extern const Pass planMemory;

/// Gives every start the event it has to await, where the target orders streams by events.
///
///   before   %g = fused ... on(compute)                 %f = reduce_scatter.start %g ... on(comm)
///   after    %g = fused ... on(compute) record(3)       %f = reduce_scatter.start %g ... on(comm) await(3)
///
/// A start begins behind the last compute node that wrote what it reads, or touched the memory it writes; what its
/// stream has waited for before it need not wait for again, so every event that is left is needed. In the same way a
/// wait is `implied` when compute waits for a later collective of the stream before anything needs it. Functions of a
/// step follow each other, also into the next step; the others begin and end with all streams joined. Requires places
/// (it goes by memory, so it sees what an `after` of another function could not say). Ensures V21. Last but for
/// outlining: whoever moves a node or a place after it breaks it.
extern const Pass assignEvents;

/// Marks sections of equal structure so that each body is emitted once and called with a table of addresses.
extern const Pass outlineRepeatedUnits;

} // namespace fsdpc
