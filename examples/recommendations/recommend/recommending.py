"""Predictions for all users, and how good they are."""

from __future__ import annotations

import numpy as np

from recommend import autoencoder
from recommend.ratings import Ratings
from recommend.settings import InputError, Settings


def predict_all(ratings: Ratings, model: dict[str, np.ndarray], settings: Settings) -> np.ndarray:
    """Return the predicted ratings of all users for all items. Raises InputError."""
    if model["encode"].shape[0] != len(ratings.item_names):
        raise InputError("the model was trained with other ratings; run `sh train.sh` again")
    mean = float(model["mean"])
    table, is_rated = ratings.to_table(~ratings.is_held_out(settings.seed))
    parameters = {name: model[name] for name in autoencoder.PARAMETERS}
    return autoencoder.predict(np, parameters, (table - mean) * is_rated) + mean


def measure(ratings: Ratings, predictions: np.ndarray, settings: Settings) -> dict[str, float]:
    """Return the error on ratings that the training has not seen, beside simpler guesses."""
    is_hidden = ratings.is_held_out(settings.seed)
    table, is_rated = ratings.to_table(~is_hidden)
    users, items, values = (a[is_hidden] for a in (ratings.users, ratings.items, ratings.values))
    mean = table.sum() / is_rated.sum()
    item_means = (table.sum(axis=0) + mean) / (is_rated.sum(axis=0) + 1)
    return {
        "held_out_ratings": len(values),
        "error": _root_mean_square(predictions[users, items] - values),
        "error_of_item_means": _root_mean_square(item_means[items] - values),
        "error_of_mean": _root_mean_square(mean - values),
    }


def _root_mean_square(errors: np.ndarray) -> float:
    return round(float(np.sqrt((errors**2).mean())), 4) if len(errors) else 0.0


def recommend(ratings: Ratings, predictions: np.ndarray, top: int) -> list[tuple[str, str, float]]:
    """Return the items with the best predictions of each user, without those that they rated."""
    open_items = predictions.copy()
    open_items[ratings.users, ratings.items] = -np.inf
    best = np.argsort(-open_items, axis=1, kind="stable")[:, :top]
    return [
        (user_name, ratings.item_names[item], round(float(predictions[user, item]), 3))
        for user, user_name in enumerate(ratings.user_names)
        for item in best[user]
        if np.isfinite(open_items[user, item])
    ]
