"""Training: each batch of users is divided among the ranks, which add their gradients.

Every rank has all parameters and makes the same steps, so only gradients are exchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from recommend import autoencoder
from recommend.autoencoder import Adam
from recommend.ranks import Ranks
from recommend.ratings import Ratings
from recommend.settings import InputError, Settings


def train(
    ratings: Ratings, settings: Settings, ranks: Ranks, report: Callable[[str], None]
) -> dict[str, np.ndarray]:
    """Return the parameters of the trained network, and the mean of the ratings."""
    xp = ranks.xp
    is_used = ~ratings.is_held_out(settings.seed)
    mean = float(ratings.values[is_used].mean())
    table, is_rated = ratings.to_table(is_used)
    centred, is_rated = xp.asarray((table - mean) * is_rated), xp.asarray(is_rated)
    initial = autoencoder.initialise(centred.shape[1], settings.hidden, settings.seed)
    parameters = {name: xp.asarray(value) for name, value in initial.items()}
    adam = Adam(xp, parameters, settings.learning_rate, settings.decay)
    random = np.random.default_rng(settings.seed)
    for epoch in range(1, settings.epochs + 1):
        order = random.permutation(len(centred))
        squares = 0.0
        for start in range(0, len(order), settings.batch):
            batch = order[start : start + settings.batch]
            # Rank 1 of 4 takes the second quarter of each batch.
            mine = xp.asarray(np.array_split(batch, ranks.size)[ranks.rank])
            sums, square = autoencoder.gradients(xp, parameters, centred[mine], is_rated[mine])
            total = ranks.add(_flatten(xp, sums, square))
            squares += float(total[-1])
            adam.step(parameters, _unflatten(total / len(batch), parameters))
        if epoch in (1, settings.epochs) or epoch % 10 == 0:
            error = (squares / is_used.sum()) ** 0.5
            report(f"epoch {epoch} of {settings.epochs}: error of the training {error:.4f}")
    trained = {name: ranks.to_host(value) for name, value in parameters.items()}
    return trained | {"mean": np.array(mean)}


def _flatten(xp: Any, sums: dict[str, Any], square: float) -> Any:
    """Return all gradients and the squared error as one array, so that they are added at once."""
    parts = [sums[name].ravel() for name in autoencoder.PARAMETERS]
    return xp.concatenate([*parts, xp.asarray([square])])


def _unflatten(values: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    result, start = {}, 0
    for name in autoencoder.PARAMETERS:
        shape = parameters[name].shape
        end = start + parameters[name].size
        result[name] = values[start:end].reshape(shape)
        start = end
    return result


def write_model(path: Path, model: dict[str, np.ndarray]) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        np.savez(file, **model)
    os.replace(unfinished, path)


def read_model(path: Path) -> dict[str, np.ndarray]:
    """Return a model that write_model has written. Raises InputError."""
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; run `sh train.sh` first") from None
