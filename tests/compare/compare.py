"""Errors of tensors against expected values. Scripts compute the largest error here, because max() drops NaN.

NaN on either side, a missing element and a different shape are infinite errors; infinities of the same sign are equal.
"""
import numpy as np

INFINITE = float("inf")


def largest_error(ours, reference):
    """max |ours - reference|; `ours` may be None."""
    if ours is None:
        return INFINITE
    ours, reference = np.asarray(ours, "f8"), np.asarray(reference, "f8")
    if ours.shape != reference.shape:
        return INFINITE
    with np.errstate(invalid="ignore"):
        errors = np.where(ours == reference, 0.0, np.abs(ours - reference))
    return worst(errors.ravel())


def relative_error(ours, reference, scale=None):
    """largest_error over `scale`, by default the largest finite |reference|; where the scale is zero, 0 or infinite."""
    error = largest_error(ours, reference)
    if scale is None:
        scale = scale_of(reference)
    return 0.0 if error == 0 else error / scale if scale > 0 else INFINITE


def scale_of(reference):
    """The largest finite |reference|, 0 where there is none."""
    sizes = np.abs(np.asarray(reference, "f8")).ravel()
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def worst(errors):
    """The largest of `errors`, 0 of none; NaN counts as infinite."""
    errors = np.asarray(list(errors), "f8")
    return INFINITE if np.isnan(errors).any() else float(errors.max(initial=0.0))
