#!/usr/bin/env python3
"""Records the loss scalers of torch and DeepSpeed at their defaults, into torch.txt and deepspeed.txt next to this script.

    record.py torch|deepspeed

Overflows are forced where scalers differ: one step before the scale would grow, right after, several in a row, every other
step, down to the minimum scale. Needs torch, or deepspeed; no test runs it. A recording has lines
`STEPS ok|overflow|error SCALE`: the number of steps without or with an overflow, and the scale after each of them.
`error`: the scaler ended the run, and the scale is unchanged.
"""
import itertools, pathlib, sys

HERE = pathlib.Path(__file__).resolve().parent
# Numbers of consecutive steps without and with an overflow, alternating.
TORCH = [1999, 1, 2000, 1, *[1, 1] * 5, 4001, 1, 2001, 42, 2000, 1, 10, 0]
DEEPSPEED = [999, 1, 1000, 1, 1001, 1, 1000, 1, 2001, 1, 1002, 5, 1000, 1, 1001, 2, *[1, 1] * 5, 1001, 10, 1001, 3]


def overflows(lengths):
    return [bool(i % 2) for i, length in enumerate(lengths) for _ in range(length)]


def record_torch():
    """GradScaler on the CPU. The gradient is infinite where an overflow is forced, and the scaler detects it."""
    import torch
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer, scaler = torch.optim.SGD([weight], lr=0), torch.amp.GradScaler("cpu")
    yield f"torch.amp.GradScaler() of torch {torch.__version__.split('+')[0]}", scaler.get_scale()
    for overflow in overflows(TORCH):
        optimizer.zero_grad()
        scaler.scale(weight * (float("inf") if overflow else 0)).backward()
        scaler.step(optimizer)
        scaler.update()
        yield "overflow" if overflow else "ok", scaler.get_scale()


def record_deepspeed():
    """DynamicLossScaler as the engine creates it from a configuration that only enables fp16."""
    import deepspeed, torch
    from deepspeed.runtime import precision_config
    from deepspeed.runtime.fp16 import loss_scaler
    loss_scaler.dist.get_rank = lambda: 1  # rank 0 would print; no ranks are started
    config = precision_config.get_float16_config({"fp16": {"enabled": True}})
    scaler = loss_scaler.CreateLossScaler(torch.half, config.loss_scale, config.loss_scale == 0, config.dynamic_loss_scale_args())
    yield f"DynamicLossScaler of deepspeed {deepspeed.__version__}, fp16 defaults", scaler.loss_scale
    for overflow in overflows(DEEPSPEED):
        try:
            scaler.update_scale(overflow)
        except Exception as error:
            assert "already at minimum" in str(error)
            yield "error", scaler.loss_scale
            return
        yield "overflow" if overflow else "ok", scaler.loss_scale


def main():
    [which] = sys.argv[1:]
    steps = {"torch": record_torch, "deepspeed": record_deepspeed}[which]()
    source, initial = next(steps)
    lines = [f"# {source}; recorded by record.py", f"initial {initial:.17g}"]
    lines += [f"{len(list(run))} {how} {scale:.17g}" for (how, scale), run in itertools.groupby(steps)]
    (HERE / f"{which}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
