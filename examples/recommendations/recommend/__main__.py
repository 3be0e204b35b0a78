"""The commands of the pipeline: ratings, train, predict."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from recommend import ranks, ratings, recommending, training
from recommend.settings import InputError, Settings


def make_ratings(settings: Settings, work: Path) -> None:
    path = work / "ratings.csv"
    if settings.ratings.startswith("s3://"):
        ratings.fetch(settings.ratings, path)
    elif settings.ratings:
        try:
            shutil.copyfile(settings.ratings, path)
        except OSError as exc:
            raise InputError(f"RATINGS: {exc}") from exc
    else:
        ratings.write(path, ratings.make(settings))
    table = ratings.read(path)
    users, items = len(table.user_names), len(table.item_names)
    print(f"{len(table.values)} ratings of {users} users for {items} items: {path}")


def train(settings: Settings, work: Path) -> None:
    here = ranks.join()
    print(f"rank {here.rank} of {here.size} computes on {here.device}", flush=True)
    table = ratings.read(work / "ratings.csv")

    def report(text: str) -> None:
        if here.rank == 0:
            print(text, flush=True)

    model = training.train(table, settings, here, report)
    if here.rank == 0:
        training.write_model(work / "model.npz", model)


def predict(settings: Settings, work: Path) -> None:
    table = ratings.read(work / "ratings.csv")
    model = training.read_model(work / "model.npz")
    predictions = recommending.predict_all(table, model, settings)
    rows = recommending.recommend(table, predictions, settings.top)
    metrics = recommending.measure(table, predictions, settings)
    ratings.write(work / "predictions.csv", rows)
    (work / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    print(json.dumps(metrics))


COMMANDS = {"ratings": make_ratings, "train": train, "predict": predict}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(f"usage: python -m recommend {'|'.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        settings = Settings.read(os.environ)
        work = Path(settings.work)
        work.mkdir(parents=True, exist_ok=True)
        COMMANDS[arguments[0]](settings, work)
    except InputError as exc:
        print(f"recommend {arguments[0]}: {exc}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
