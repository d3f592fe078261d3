"""Errors that compare.py must detect. Prints one line, or ends with the failed assertion."""
import pathlib, sys

import numpy as np
from compare import INFINITE, largest_error, relative_error, scale_of, worst

NAN, INF = float("nan"), float("inf")
assert largest_error([1, 2, 3], [1, 2.5, 3]) == 0.5
assert largest_error([NAN, 1], [1, 1]) == INFINITE and largest_error([1, 1], [1, NAN]) == INFINITE
assert largest_error([1, NAN, 5], [1, 1, 1]) == INFINITE, "a number that follows hides nothing"
assert largest_error([NAN], [NAN]) == INFINITE
assert largest_error([INF, -INF], [INF, -INF]) == 0
assert largest_error([INF], [-INF]) == INFINITE
assert largest_error([INF], [1]) == INFINITE and largest_error([1], [INF]) == INFINITE
assert largest_error([1], [1, 1]) == INFINITE and largest_error([1, 1], [1]) == INFINITE
assert largest_error(np.zeros((2, 3)), np.zeros((3, 2))) == INFINITE and largest_error(1.0, [1.0]) == INFINITE
assert largest_error(None, [1]) == INFINITE
assert largest_error(np.zeros((0, 3)), np.zeros((0, 3))) == 0
assert largest_error(np.array([1, 2]), np.array([1, 4])) == 2, "integers, too"
assert relative_error([2, 4], [2, 5]) == 0.2 and relative_error([2, 4], [2, 5], 10) == 0.1
assert relative_error([1, INF], [1, INF]) == 0 and relative_error([1.5, INF], [1, INF]) == 0.5
assert relative_error([0], [0]) == 0 and relative_error([1], [0]) == INFINITE and relative_error([NAN], [0], 0) == INFINITE
assert scale_of([NAN, -3, INF]) == 3 and scale_of([NAN]) == 0 and scale_of([]) == 0
assert worst([]) == 0 and worst([1, NAN, 2]) == INFINITE and worst(x for x in (1, 3, 2)) == 3

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import accept  # noqa: E402

whole = np.array([[1.0, 2.0], [3.0, 4.0]])
holed = np.array([[NAN, 2.0], [3.0, 4.0]])
assert accept.deviation(whole.T, whole, {}, {}, 4.0) == 0 and accept.deviation(whole.ravel(), whole, {}, {}, 4.0) == 0
assert accept.deviation(holed, whole, {}, {}, 4.0) == INFINITE and accept.deviation(None, whole, {}, {}, 4.0) == INFINITE
assert accept.deviation(whole[:1], whole, {}, {}, 4.0) == INFINITE and accept.deviation(whole, holed, {}, {}, 4.0) == INFINITE
repacked = {"joined": [["other", 0, 1], ["part", 0, 2]]}
row = {"fqn": "part", "found_as": ["joined"]}
assert accept.deviation(np.array([9.0, 1.0, 2.0]), np.array([1.0, 2.0]), row, {"repacked": repacked}, 1.0) == 0
assert accept.deviation(np.array([NAN, 1.0, 2.0]), np.array([1.0, 2.0]), row, {"repacked": repacked}, 1.0) == INFINITE
print("compare: ok")
