// The list of passes. Each pass has its contract here, one source file of the same stem, one line in pipeline.cpp and
// one test file.
#pragma once

#include "passes/pass.h"

namespace fsdpc {

// ---------------------------------------------------------------------------------------------------- graph

/// Evaluates nodes whose operands are all constants (results of up to 2^12 elements, or as many as the operands store)
/// and merges equal constants. Requires: graph stage. Ensures: no pure node has only constant operands, except
/// broadcasts, iotas and what would grow: masks and tables of angles stay formulas. Runs first, so that later passes
/// see shape arithmetic as plain constants.
extern const Pass foldConstants;

/// Brings the graph to a canonical form. Transposes of matmul operands become transpose flags. Consecutive transposes
/// and consecutive reshapes are merged. x*1, x+0, double neg, casts to the same type, broadcasts to the same shape and
/// full slices are removed.
///     %t = transpose %w {1,0}; %y = matmul %x, %t     ->     %y = matmul %x, %w transpose_b
/// Requires/ensures: graph stage. Runs before recognizePatterns, which then has fewer forms to match.
extern const Pass canonicalize;

/// Merges pure nodes with equal op, attributes and operands (also reads of the same state).
extern const Pass eliminateCommon;

/// Replaces decomposed forms by the composite op that has its own derivative: LayerNorm, RMSNorm, GELU (erf and tanh),
/// SiLU, rotary position embedding, softmax attention with its scale, cap and mask. Masks that hide keys by distance
/// become `causal` and `window`, at every length, since they are read from how they are made (mask_structure.h); other
/// masks stay on the axes that they depend on. Runs before autodiff, so that no S x S matrix is kept for backward.
/// Transposes around attention are absorbed into its layout. Keys that were repeated for the queries of a group are
/// read without the repetition.
extern const Pass recognizePatterns;

/// Removes nodes without side effects whose results are unused, in every function. States stay even if nothing reads
/// them: parameters are saved and scalars are set by name.
extern const Pass eliminateDead;

/// Chooses the initial values of parameters that have none (Parameter::hasValue) and no other specification. Follows
/// PyTorch's modules, based on the nodes that read the parameter:
///     weight of a matmul or convolution      uniform +-1/sqrt(fan_in)     fan_in: products summed in one result
///     bias of such a result                  the same, by its fan_in
///     scale and shift of a norm, a factor    1, 0, 1; the slope of a PRelu 0.25
///     table of an embedding, added table     normal 0, 1
/// A table that a matmul reads too is initialized as that matmul's weight: with normal 0, 1 its scores would grow with
/// the square root of the width. All other parameters start at zero, and a remark names them.
///     parameter @w : f32[2,3] no_value     ->     parameter @w : f32[2,3] no_value initial(uniform -0.57, 0.57, ...)
/// Requires/ensures: graph stage; does not change nodes. Runs after recognizePatterns, so that norms are recognized,
/// and before fuseBiases, so that a bias is still an addend.
extern const Pass initializeParameters;

/// --separate_documents: attention takes the numbers of the documents as an operand, tables of positions are looked up.
/// Requires/ensures: graph stage; positions meet in attention alone, else it is refused. Runs after recognizePatterns.
///     %o, %l = attention %q, %k, %v causal     ->     %o, %l = attention %q, %k, %v, %document_ids causal documents
extern const Pass separateDocuments;
/// The inputs that it adds.
inline constexpr llvm::StringLiteral documentIdsName = "document_ids", documentPositionsName = "document_positions";

/// --lora: adds low-rank adapters beside the frozen weights of linear layers (the file says how).
///     %y = matmul %x, %w     ->     %y.0 = matmul %x, %w; %a = matmul %x, %down; %b = matmul %a, %up; %y = add %y.0,
///     %b
/// Requires/ensures: graph stage. Runs before differentiate, which then sees ordinary nodes.
extern const Pass insertAdapters;

/// Rewrites convolutions that pad the two sides of an axis differently, where the target has no kernel for that. The
/// convolution keeps the padding that both sides share. A pad node adds the remaining zeros around x.
///     convolution %x, %w pads_after(1, 1)     ->     %p = pad %x after(0, 0, 1, 1); convolution %p, %w
/// A transposed convolution (convolution_grad_input) computes the larger result, which is then sliced.
/// Requires/ensures: graph stage. Runs before differentiate, so that derivatives have even pads too, and after
/// canonicalize, which changes neither form.
extern const Pass evenPads;

/// Sets batch_axis of every random_uniform to the batch axis of the values it is combined with. The dropout mask of a
/// sample then depends on the sample and not on its position in a rank. Where the batch shares an axis with other dims,
/// the random numbers are generated, and compared with the ratio, in a shape with a separate batch axis:
///     %u = random_uniform : f32[6,4]; %d = less %u, %r     ->     %u = random_uniform batch_axis(0) : f32[2,3,4]
///                                                                 %d.0 = less %u, %r.0; %d = reshape %d.0 : bool[6,4]
/// Where no axis holds the batch, batch_axis is -1 and a remark states that the masks depend on the number of ranks.
/// Requires/ensures: graph stage. Imported random_uniform nodes have batch_axis 0. Runs after the rewrites: patterns
/// know dropout in one shape.
extern const Pass keyRandomness;

/// Gives neighbouring elementwise nodes one shape. A node whose users reshape it is computed in their shape instead.
/// Its operands are reshaped, up to a matmul, whose reshape is free.
///     %b = broadcast %bias; %h = add %p, %b : f32[32,8]; %r = reshape %h : f32[4,8,8]; %y = add %r, %x
///     ->     %r = reshape %p : f32[4,8,8]; %b = broadcast %bias; %h = add %r, %b; %y = add %h, %x
/// Applies only where this joins more neighbours than it separates. Broadcasts keep their source, so the reshape must
/// not change the dims of the source. Random numbers keep their shape.
/// Requires/ensures: graph stage. Derivatives then have one shape too, and fuseElementwise finds entire chains.
extern const Pass alignShapes;

/// Assigns a unit to every node and parameter (planUnits in graph/unit_plan.h lists the policies) and records the
/// options of each: Module::units, Parameter::unit, Parameter::ignored. The nodes of a unit become contiguous, so units
/// may be entered in another order than in the model. A module around other units keeps the rest of its nodes as one
/// unit. Its nodes after the inner units form a separate section, a unit without parameters named .rest. A Module that
/// already has units keeps them. Last pass of the graph stage: derivatives inherit the unit of the node they are
/// derived from.
extern const Pass assignUnits;

/// With --mixed_precision bf16 or fp16, or where units specify it: computes the forward graph in the 16-bit type
/// wherever a value depends on a parameter or a float input. Parameters and their gradients stay f32. A parameter is
/// rounded at each use. Any other value is rounded once, also between units of different types. Positions, masks
/// (including the attention mask) and random numbers keep their type. Outputs have outputDType. Constants are rounded
/// here, and values beyond the type's range are clamped to its largest finite value. Tables are rounded to bufferDType;
/// with f32, nodes that read one compute in f32 and round the result. Without castForwardInputs a float input is
/// rounded where it meets a parameter.
///     %y = matmul %x, %w : f32[4,8]     ->     %wc = cast %w : bf16[2,8]; %y = matmul %xc, %wc : bf16[4,8]
/// Requires/ensures: graph stage, units assigned. Runs before appendLoss, which reads logits before their cast to f32.
/// The types show where values are rounded; later passes never add or remove a rounding.
extern const Pass insertCasts;
extern const Pass narrowFrozen;

/// Fuses a bias addition into the matmul, before the sum is rounded. Saves one pass over memory and, in 16 bits, one
/// rounding. The addition must be the only use of the matmul.
///     %p = matmul %x, %w : f32[4,8]; %b = broadcast %bias; %y = add %p, %b     ->     %y = matmul %x, %w, %bias
/// A reshape between matmul and addition that keeps the last dim moves after the matmul. The matmul moves to the
/// position of the addition, so the bias may be defined between the two.
/// Requires/ensures: graph stage, units assigned; only where matmul and addition are in the same unit. Runs after
/// insertCasts, so that the roundings of this graph count, and before differentiate, which knows matmuls with a bias.
extern const Pass fuseBiases;

// ---------------------------------------------------------------------------------------------------- train

/// Adds the labels and sample_weight inputs and the loss. forward becomes micro_step (loss_sum, outputs), eval_step
/// (dropout off) and prologue (count = batch_sum of the terms that count). mean: loss = batch_sum(loss_sum) / count.
extern const Pass appendLoss;

/// The cross entropy of a matmul's result becomes one op that computes logits for a few positions at a time, so that
/// they never exist as a whole. Reshapes and slices of rows between the two move to the operand of the matmul; a cap of
/// the logits (cap * tanh(x / cap)) and the class of the largest one become part of the op.
///     %z = matmul %x, %w transpose_b : f32[4096,50304]; %terms, %lse = cross_entropy %z, %labels
///     ->     %terms, %class = linear_cross_entropy %x, %w, %labels transpose_b chunk(512)
/// The model's outputs, which need the logits, become results of a function of their own, predict.
/// Requires/ensures: train stage. --loss_chunk says how many positions, and off leaves everything as it is; by default
/// Target::lossChunk of them, where that makes two chunks or more and there are many classes. Runs before
/// differentiate: the op has its own derivative. Errors: a number is given and there is no such loss, or sums are those
/// of --deterministic world.
extern const Pass chunkLoss;

/// Batch norms in training mode normalise with the statistics of the batch and update the running statistics: once in
/// micro_step, even if the norm is recomputed later, by PyTorch's rule (unbiased variance), averaged over the ranks.
///     %y = batch_norm %x, %w, %b, %rm, %rv training momentum(0.1)
///     ->     %mean, %var = batch_statistics %x; %y = batch_norm %x, %w, %b, %mean, %var
///            %all = batch_sum (%mean / N) ranks(N); write @rm (update_statistics %rm, %all momentum(0.1))
/// `synced` norms normalise with the statistics of the batch over all ranks: one batch_sum of mean and variance +
/// mean^2, in f64, whose derivative is one batch_sum too. In eval_step all norms use the running statistics.
/// Requires/ensures: train stage, no `training` afterwards; each running statistic belongs to one norm. Runs before
/// differentiate: the loss depends on x through the statistics too. Errors: one element in a channel; running
/// statistics shared by two norms.
extern const Pass expandBatchStatistics;

/// Reverse-mode autodiff of micro_step's loss_sum with seed 1/count (mean) or 1 (sum), times @loss_scale if the options
/// have a loss scale, whose states this pass adds. One vjp per op. Every trainable parameter with a path to the loss
/// gets `grad.<name>` = batch_sum(local gradient) as a result. Parameters without a path are not updated; frozen ones
/// get no gradient. Where gradients are sent in 16 bits (reduceDType, or the unit's own setting), the local gradient of
/// an f32 parameter is rounded once, before the sum, and the sum has that type:
///     %c = cast %local : bf16[2,8]; %grad.w = batch_sum %c : bf16[2,8]
extern const Pass differentiate;

/// The derivative of a linear_cross_entropy computes logits again, and returns the terms too. Where the terms'
/// cotangent does not depend on them, they come from there:
///     %terms, %class = linear_cross_entropy %x, %w, %labels; ...
///     %again, %dx, %dw = linear_cross_entropy_grad %dterms, %x, %w, %labels     ->     %terms = %again
/// What reads the terms moves after the derivative.
/// Requires/ensures: train stage. Runs after differentiate. Without it logits are computed twice.
extern const Pass mergeLossGradient;

/// Expands batch_norm into elementwise nodes, computed in f32 and rounded at the end, so that it fuses into one loop
/// with its neighbours (relu, the sum of a residual block, the sums of its derivative).
///     %y = batch_norm %x, %w, %b, %mean, %var
///     ->     %y = (%x - broadcast %mean) * broadcast (%w * rsqrt(%var + epsilon)) + broadcast %b
/// Requires/ensures: train stage, no batch_norm afterwards. Runs after differentiate: batch_norm has its own
/// derivative.
extern const Pass expandBatchNorm;

/// Keeps in f32 a gradient that was accumulated in f32, rounded to 16 bits and cast back to f32. Matmuls, sums over the
/// batch, scattered sums and the scales of norms become `accumulate_f32`.
///     %g = matmul %x, %dy : bf16[2,8]; %gw = cast %g : f32[2,8]
///     ->     %gw = matmul %x, %dy accumulate_f32 : f32[2,8]
/// A gradient that is sent in the 16-bit type it was rounded to stays as it is, unless micro-steps accumulate it in f32
/// first:
///     %gw = cast %g : f32[2,8]; %s = cast %gw : bf16[2,8]     ->     %g
/// Requires/ensures: train stage. Runs after differentiate. The matmul then writes the buffer that the reduction sends.
extern const Pass promoteGradients;

/// The derivative of a tensor that is read in slices is a sum of padded slices. Where the slices tile one axis, they
/// are concatenated instead, also through reshapes. Other summands stay, in their order.
///     %pa = pad %a; %pb = pad %b; %s = add %pa, %pb     ->     %s = concat %a, %b
/// Requires/ensures: train stage. Runs after differentiate, which creates these sums.
extern const Pass combineGradients;

/// With --deterministic world: computes each of the rank's B samples with separate nodes and sums over samples in one
/// balanced binary tree, which the tree over ranks continues. The imported graph is for one sample (inputs [1, ...]).
/// Inputs become [B, ...] and are sliced; results per sample are concatenated. Nodes that depend on no sample stay
/// single. Samples alternate section by section, so a unit is still gathered once. A sum adds each pair as soon as both
/// are available.
///     %g = matmul %dy, %x; %t = batch_sum %g
///     ->     %g = matmul %dy, %x; %g.1 = matmul %dy.1, %x.1; %g.2 = add %g, %g.1; %t = batch_sum %g.2
/// Requires/ensures: train stage; B a power of two. Does nothing without the option. Runs after differentiate, so that
/// derivatives are for one sample too, and before the optimizer, which sees only sums.
extern const Pass splitSamples;

/// Sums the gradient of a row table's lookup (shard/row_tables.h) over the ranks apart from the gradients of its other
/// uses, such as a tied output layer: so that shardState can exchange it by rows, and reduce the others as soon as they
/// are computed.
///     %s = add %a, %lookup; %g = batch_sum %s     ->     %s = batch_sum %a; %r = batch_sum %lookup; %g = add %s, %r
/// Changes the order of a sum, so it does nothing with --deterministic, nor with several micro-steps, whose sums over
/// the two would be apart as well. Requires/ensures: train stage, gradients in their final types. Runs after
/// promoteGradients and combineGradients.
extern const Pass splitTableGradients;

/// Adds update (the optimizer on every parameter with a gradient), tap_gradients and export, and the optimizer's state.
/// With --max_norm, --nonfinite skip or warn, or a loss scale, the update is guarded (support/update_guard.h):
///     %a = square_sum %grad.w, %grad.b; %norm, %scale, %finite = clip_norm %a, %loss, %max_norm bounded
///     %applied, ... = spike_guard %norm, %finite, ...
///     %n, ... = adam %w, %grad.w, ..., %scale, %applied guarded; return %norm, %applied
/// and state optimizer_step, which counts applied steps, replaces step. A gradient that was summed in 16 bits is
/// promoted to f32 for norm, optimizer and tap. With keepLowPrecisionGrads, norm and optimizer read it as it is.
extern const Pass appendOptimizer;

/// Moves values that depend on nothing (tables of angles, positions, buckets; large constants) to the function `start`,
/// which runs once. They become states of role table. Only values of minTableBytes or more that cost more to compute
/// than to read: a transcendental, a matmul, a copy. A value that only forward reads becomes a table up to 1 MiB;
/// otherwise it would take its memory during the whole step. Equal tables of several functions are one.
///     %a = outer %positions, %rates; %c = cos %a     ->     start: write @table.0 (cos ...); %c = read @table.0
/// What a value only repeats (broadcasts, views) stays in the step. Requires/ensures: train stage. Runs after
/// splitSamples, which copies what belongs to a sample, and before selectSaved, to which a table is always there.
extern const Pass makeTables;

/// With --attention cudnn: marks attention and its derivative `library` where Target::whyNotByLibrary has no objection.
/// The target's library then computes them. For the others a remark states the reason.
///     %o, %lse = attention %q, %k, %v causal     ->     %o, %lse = attention %q, %k, %v causal library
/// Requires/ensures: train stage. Does nothing without the option. The choice affects only the node's scratch and the
/// emitted statement. Runs after splitSamples, which decides the batch size. Runs in the train stage because forward
/// and derivative exist from there on, and because the checker compares the nodes of this stage with the planned ones.
extern const Pass selectAttention;

/// Decides which forward values are kept for backward. In units with activation_checkpointing, nodes that backward
/// reads are marked save(recompute), unless the mode keeps them.
///     full:      keeps only the values that other units read (Chen et al., arXiv 1604.06174)
///     selective: also keeps the results of matmuls, convolutions and attention
///     budget:    minimizes the recompute time within activationMemoryBudget (train/saved_budget.h); where activations
///                may be offloaded, units whose kept values stay on the host are marked offload_activations(on)
///     %h = matmul %x, %w; %y = gelu %h     ->     %h = matmul %x, %w; %y = gelu %h save(recompute)
/// Never marked: collectives; nodes whose recomputation needs a collective that backward would not need otherwise (a
/// frozen parameter that no derivative reads); values that other units or the runtime read; and the last region of
/// forward, since backward begins right after it.
/// Requires/ensures: train stage. Changes no value; insertRecompute applies the marks. Last pass of the stage: a pass
/// that changes nodes after it would have to know the marks.
extern const Pass selectSaved;

// ---------------------------------------------------------------------------------------------------- sharded

/// Replaces parameter states by flat, padded, evenly split segments (shard/segments.h) and optimizer state by state of
/// the same layout, according to each unit's row of the placement table (shard/placement.h). Creates the mesh. Gathers
/// and reductions are inserted in their most direct form. A parameter's read becomes read + all_gather + view. The
/// gradients of a segment become one pack + reduce_scatter (+ all_reduce over replicas) at the function's end. Scalar
/// batch_sums become all_reduce. A gradient is sent in the type of its batch_sum. update works on entire shards. A
/// guarded update sums squares over the ranks that a gradient is split over. A state that is unsharded on every rank (a
/// segment without `over`, a replica) is read directly, and its gradients are all-reduced. A single rank holds
/// everything and needs no communication. With several micro-steps, gradients and other sums over the batch are added
/// to f32 accumulators (shard/accumulators.h) and rounded where they are sent. update uses and clears them, after
/// summing over replicas and reducing the gradients that units keep unsharded. Where results must be bitwise
/// independent of the strategy, replicas are summed in every micro-step.
///     %w = read @fc.weight   ->   %s = read @u.p; %f = all_gather %s over(@shard); %w = view %f {offset}
/// A parameter that is only looked up by rows is never gathered where RowTables (shard/row_tables.h) chooses so: ranks
/// exchange indices and rows, and the owners add the gradients. It is tapped a piece of each shard at a time.
///     %y = gather %w, %i     ->   %a = all_gather %i; %r = gather_rows %s, %a; %y = reduce_scatter %r
///     %d = scatter_add %i, %dy; batch_sum %d   ->   scatter_rows(all_gather %i, all_gather %dy)
/// Requires: train. Ensures: sharded, no state of role parameter.
extern const Pass shardState;

/// Applies the marks of selectSaved. Marked nodes are recomputed from the kept values, in a separate section right
/// before the first region of backward that reads them.
///     unit @a forward { %y = gelu %h save(recompute) }     ->     unit @a forward { %y = gelu %h }
///     unit @a backward { ... %y ... }                             unit @a recompute { %y.1 = gelu %h }
///                                                                 unit @a backward { ... %y.1 ... }
/// Random numbers are generated again from the same key, so masks are equal. Every other op is bitwise reproducible for
/// the same operands.
/// Requires/ensures: sharded stage, no frees; no marks afterwards. Runs after shardState, so that the train stage that
/// the checker compares with has no recomputation, and before sinkGathers, which gathers once for a section and its
/// recompute section.
extern const Pass insertRecompute;

/// Gives every unit's section its own gather: one all_gather right before the first use and one free right after the
/// last. A unit is then unsharded only while it computes. Units that stay unsharded until backward get one gather for
/// all sections. A segment that is freed and gathered again with no other gather between is kept instead, from forward
/// to backward only by default. With a reshard group, this rank's part of it is kept and backward gathers within the
/// group:
///     free %f   ->   %part = take_shard %f over(@reshard_2); free %f; ... %f.1 = all_gather %part over(@reshard_2)
/// Runs after shardState, which inserts the gathers without frees.
extern const Pass sinkGathers;

/// Moves each pack and the collectives that sum it to right after the last of its gradients. Copies the parts that
/// cannot be computed in place in the pack (a gathered buffer, a view, the same value twice).
extern const Pass hoistReduceScatters;

/// Fuses a sum into the norm that reads it, and the sum that reads a norm's derivative into the derivative. Neither is
/// then a separate pass over memory. Roundings do not change, so results are bitwise identical.
///     %s = add %x, %r; %y, %rstd = rms_norm %s, %g     ->     %y, %rstd, %s = rms_norm %x, %g, %r
///     %t, %dg = rms_norm_grad %dy, %s, %g, %rstd; %ds = add %d, %t     ->     %ds, %dg = rms_norm_grad ..., %rstd, %d
/// Within a section only. A sum is not fused where other nodes read it before the norm, or where the derivative has
/// another use; where an operand is a broadcast, a constant or an elementwise value without another use, since the sum
/// is then part of fuseElementwise's loop; and where the target has no such kernel.
/// Requires/ensures: sharded stage, no frees. Runs before fuseElementwise, which fuses all remaining sums.
extern const Pass fuseResiduals;

/// Fuses elementwise chains into `fused` nodes. Broadcasts, casts, constants and random numbers are absorbed. Values
/// used by more than one fused node become results. Never changes where a value is rounded.
extern const Pass fuseElementwise;

// ---------------------------------------------------------------------------------------------------- async

/// Splits collectives into a start immediately followed by its wait. Assigns every node its stream: reductions run on
/// `comm`, or on `reduce` where they have a separate communicator. Correct, but without overlap.
extern const Pass splitCollectives;

/// Moves starts up and waits down. The next unit's gather starts before this unit computes (in forward, and before this
/// unit's gradients in backward), as far ahead as Decisions::maxInflightAllGathers allows. That bound limits the units
/// that are gathered for a single use. A reduction is waited for when the next one starts, since otherwise a third
/// buffer would be needed; its continuation over the replicas starts there. Replicas are waited for at the end. A
/// unit's own prefetch choices override the module's.
extern const Pass scheduleComm;

/// With several micro-steps: adds a micro-step's value to its accumulator as soon as it is available instead of at the
/// end, so that its memory is freed.
///     %g = wait %r; ...; %s = add %acc, %g; write @u.p.grad %s     ->     %g = wait %r; %s = add %acc, %g; write ...;
///     ...
/// Requires/ensures: async stage. Runs after scheduleComm, which places the waits where they delay nothing.
extern const Pass hoistAccumulation;

/// Moves the optimizer of each segment from update into micro_step, right after the wait for its reduction and the last
/// reader of the memory it overwrites. It then runs while other units' gradients are in flight. A replica's gather
/// starts there too and is waited for at the end of the step. Gradients live no longer than their optimizer: they are
/// stashed for a tap, which costs nothing in a step that saves none.
///     micro_step: %g = wait %r               micro_step: %g = wait %r; stash @u.p %g; %n = adam %p, %g, ...; write
///     tap_gradients(%g): tap %g         ->   tap_gradients: %g = unstash @u.p; tap %g
///     update: %n = adam %p, %g; write        update:
/// Requires/ensures: async stage. Does nothing with several micro-steps or with a guarded update, which needs all
/// gradients first.
extern const Pass overlapOptimizer;

/// Starts the first gather of a step in `update` of the previous step: after the write of its state, or at the
/// beginning where that write is in micro_step. All gathered units are freed by then.
///     micro_step(%x): %f = all_gather.start %u.p; wait %f    ->   micro_step(%x, %next.u.p): wait %next.u.p
///     update: ...; write @u.p %n; return                          update: ...; write @u.p %n;
///                                                                 %g = all_gather.start %n; return %g
/// Requires/ensures: async stage. Does nothing with several micro-steps or for a unit without forward prefetch.
extern const Pass prefetchAcrossSteps;

/// Inserts the copies between the device and its host that units and Decisions::offloadActivations ask for. Each copy
/// is waited for where it starts.
///
/// States marked `host` (by shardState): the device reads a copy of such a state, and its writes to the state are
/// copied to the host. An optimizer whose segment is on the host runs `on(host)`, over copies of its device operands.
/// These copies are made where the values are computed, so that gradients leave the device immediately.
///
///   before   %p = read @u.p; %f = all_gather.start %p
///   after    %p = read @u.p; %c = reload.start %p on(copy); %d = wait %c; %f = all_gather.start %d
///
/// Activations: values that forward computes, backward reads and no node uses for three regions of units or more. All
/// of them are offloaded where the unit that computes the value, or the first unit that reads it in backward, has
/// offload_activations(on). Where the computing unit does not specify it, values are offloaded in program order, up to
/// the share:
///
///   before   %x = ... (forward)  ...  use %x (backward)
///   after    %x = ...; %c = offload.start %x; %h = wait %c  ...  %b = reload.start %h; %y = wait %b; use %y
///
/// Requires/ensures: async stage. Runs after every pass that positions nodes, since the copies are inserted next to
/// them, and before insertFrees, which then frees the offloaded buffers. Values do not change.
extern const Pass insertOffload;

/// Overlaps each copy with compute that does not need it. Starts of reloads move up and waits of offloads move down,
/// until the predicted compute time in between is twice that of the copies, which run one after the other. A copy moves
/// at most to the beginning of the previous region or the end of the next one, and not across the definition of the
/// copied value, the last write of the state or the first reader. Only moves nodes; does nothing without overlap_comm.
/// Requires/ensures: async stage.
extern const Pass scheduleCopies;

/// Adds a free after the last use of every buffer that has none yet.
extern const Pass insertFrees;

// ---------------------------------------------------------------------------------------------------- planned

/// Assigns every buffer a space and an offset from exact live ranges over all functions, states first. Adds workspaces
/// and the ordering edges (`after`) that reuse across streams needs.
extern const Pass planMemory;

/// Assigns every start the event it must wait for, where the target orders streams by events.
///
///   before   %g = fused ... on(compute)                 %f = reduce_scatter.start %g ... on(comm)
///   after    %g = fused ... on(compute) record(3)       %f = reduce_scatter.start %g ... on(comm) await(3)
///
/// A start begins after the last compute node that wrote its operand or accessed the memory it writes. It does not wait
/// again for an event that its stream has already waited for, so every remaining event is needed. In the same way a
/// wait is `implied` when compute waits for a later collective of the stream before any node needs the result.
/// Functions of a step follow each other, also into the next step; other functions begin and end with all streams
/// joined. Requires memory offsets: it works on memory accesses, so it sees orders that an `after` cannot express
/// across functions. Ensures V21. Last pass except for outlining: a pass that moves a node or an offset after it breaks
/// it.
extern const Pass assignEvents;

/// Marks sections of equal structure so that each body is emitted once and called with a table of addresses.
extern const Pass outlineRepeatedUnits;

// ------------------------------------------------------------------------------------------------ debugging
/// Crashes, to test the reproducer that the compiler writes then. Not in the pipeline; train stage.
extern const Pass crash;

} // namespace fsdpc
