"""The set of ratings: made here, from a file or from S3; and its division in two parts."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recommend.settings import InputError, Settings

#: The set that is made has as many hidden tastes, and a user has rated this part of the items.
_TASTES, _RATED, _NOISE = 4, 0.25, 0.35
_LOWEST, _HIGHEST = 0.5, 5.0
#: Part of the ratings that the training does not see.
_HELD_OUT = 0.1


@dataclass(frozen=True)
class Ratings:
    """Rating k: user_names[users[k]] gave values[k] to item_names[items[k]]."""

    user_names: list[str]
    item_names: list[str]
    users: np.ndarray
    items: np.ndarray
    values: np.ndarray

    def is_held_out(self, seed: int) -> np.ndarray:
        """Return for each rating whether it is kept from the training, to measure the error."""
        return np.random.default_rng(seed).random(len(self.values)) < _HELD_OUT

    def to_table(self, is_used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ratings as users x items, 0 where there is none, and where there is one."""
        shape = (len(self.user_names), len(self.item_names))
        table, is_rated = np.zeros(shape), np.zeros(shape)
        place = (self.users[is_used], self.items[is_used])
        table[place], is_rated[place] = self.values[is_used], 1.0
        return table, is_rated


def make(settings: Settings) -> list[tuple[str, str, float]]:
    """Return ratings of users whose tastes are a few numbers each, with noise, in half stars."""
    random = np.random.default_rng(settings.seed)
    users = random.normal(size=(settings.users, _TASTES))
    items = random.normal(size=(_TASTES, settings.items))
    kindness, quality = random.normal(0, 0.3, settings.users), random.normal(0, 0.4, settings.items)
    stars = 3.2 + kindness[:, None] + quality + users @ items * 0.45
    stars += random.normal(0, _NOISE, stars.shape)
    stars = np.clip(np.round(stars * 2) / 2, _LOWEST, _HIGHEST)
    rated = np.argwhere(random.random(stars.shape) < _RATED)
    return [(f"u{user:05}", f"i{item:05}", float(stars[user, item])) for user, item in rated]


def fetch(address: str, path: Path) -> None:
    """Copy a set of ratings from S3. Raises InputError."""
    # Only this needs boto3.
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = address.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InputError(f"RATINGS is {address!r}; an address in S3 is s3://BUCKET/KEY")
    try:
        boto3.client("s3").download_file(bucket, key, str(path))
    except (BotoCoreError, ClientError) as exc:
        raise InputError(f"{address} cannot be copied: {exc}") from exc


def write(path: Path, rows: list[tuple[str, str, float]]) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("user", "item", "rating"))
        writer.writerows(rows)
    os.replace(unfinished, path)


def read(path: Path) -> Ratings:
    """Return the ratings of a CSV file with a heading. Raises InputError with the line."""
    users: list[str] = []
    items: list[str] = []
    values: list[float] = []
    try:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                users.append(row["user"])
                items.append(row["item"])
                values.append(float(row["rating"]))
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist; run `python -m recommend ratings` first"
        ) from None
    except (KeyError, TypeError, ValueError):
        line = len(values) + 2
        raise InputError(f"line {line} of {path} is not a user, an item and a number") from None
    if not values:
        raise InputError(f"{path} has no ratings")
    user_names, user_numbers = np.unique(users, return_inverse=True)
    item_names, item_numbers = np.unique(items, return_inverse=True)
    return Ratings(
        user_names.tolist(), item_names.tolist(), user_numbers, item_numbers, np.array(values)
    )
