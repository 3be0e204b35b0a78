"""The network: a user's ratings go through a narrow layer, and come out for all items.

The arrays are those of NumPy or CuPy. All numbers have 64 bits, so that the order of the sums,
which depends on the number of ranks, hardly changes the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Names of the parameters, in the order of their gradients.
PARAMETERS = ("encode", "encode_bias", "decode", "decode_bias")
_MOMENTUM, _SCALE_MOMENTUM, _EPSILON = 0.9, 0.999, 1e-8

Parameters = dict[str, Any]


def initialise(items: int, hidden: int, seed: int) -> Parameters:
    random = np.random.default_rng(seed)
    width = np.sqrt(6.0 / (items + hidden))
    return {
        "encode": random.uniform(-width, width, (items, hidden)),
        "encode_bias": np.zeros(hidden),
        "decode": random.uniform(-width, width, (hidden, items)),
        "decode_bias": np.zeros(items),
    }


def predict(xp: Any, parameters: Parameters, centred: Any) -> Any:
    """Return the predictions for users, from their ratings around the mean (0 where unknown)."""
    code = xp.tanh(centred @ parameters["encode"] + parameters["encode_bias"])
    return code @ parameters["decode"] + parameters["decode_bias"]


def gradients(
    xp: Any, parameters: Parameters, centred: Any, is_rated: Any
) -> tuple[Parameters, float]:
    """Return the gradients of half the squared error over the known ratings, and that error.

    Both are sums over the users: the sums of two groups of users are those of all of them.
    """
    code = xp.tanh(centred @ parameters["encode"] + parameters["encode_bias"])
    output = code @ parameters["decode"] + parameters["decode_bias"]
    error = (output - centred) * is_rated
    inner = (error @ parameters["decode"].T) * (1 - code * code)
    values = {
        "encode": centred.T @ inner,
        "encode_bias": inner.sum(axis=0),
        "decode": code.T @ error,
        "decode_bias": error.sum(axis=0),
    }
    return values, float((error * error).sum())


class Adam:
    """The steps of Adam, with a weight for the squared parameters."""

    def __init__(self, xp: Any, parameters: Parameters, rate: float, decay: float) -> None:
        self._xp, self._rate, self._decay = xp, rate, decay
        self._steps = 0
        self._means = {name: xp.zeros_like(value) for name, value in parameters.items()}
        self._scales = {name: xp.zeros_like(value) for name, value in parameters.items()}

    def step(self, parameters: Parameters, means_of_gradients: Parameters) -> None:
        """Change the parameters against the gradients."""
        self._steps += 1
        for name, value in parameters.items():
            gradient = means_of_gradients[name]
            if not name.endswith("bias"):
                gradient = gradient + self._decay * value
            mean, scale = self._means[name], self._scales[name]
            mean += (1 - _MOMENTUM) * (gradient - mean)
            scale += (1 - _SCALE_MOMENTUM) * (gradient * gradient - scale)
            mean_now = mean / (1 - _MOMENTUM**self._steps)
            scale_now = scale / (1 - _SCALE_MOMENTUM**self._steps)
            value -= self._rate * mean_now / (self._xp.sqrt(scale_now) + _EPSILON)
