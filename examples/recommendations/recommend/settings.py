"""The configuration of a run, from environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields


class InputError(Exception):
    """Input that cannot be used. The command prints the message and exits with 2."""


@dataclass(frozen=True)
class Settings:
    #: Folder of all files that the commands write.
    work: str = "work"
    #: A file or an s3:// address of ratings as CSV (user,item,rating); empty: ratings are made.
    ratings: str = ""
    #: Size of the set that is made.
    users: int = 800
    items: int = 300
    #: Units of the hidden layer.
    hidden: int = 24
    epochs: int = 60
    #: Users whose gradients are added before the parameters change.
    batch: int = 100
    learning_rate: float = 0.01
    #: Weight of the squared parameters in the loss.
    decay: float = 0.02
    #: Items that are recommended to each user.
    top: int = 10
    seed: int = 7

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings of EPOCHS, HIDDEN, LEARNING_RATE ... Raises InputError."""
        values = {}
        for field in fields(cls):
            name = field.name.upper()
            if environ.get(name):
                values[field.name] = _parse(name, environ[name], type(field.default))
        settings = cls(**values)
        for name in ("users", "items", "hidden", "epochs", "batch", "top"):
            if getattr(settings, name) < 1:
                raise InputError(
                    f"{name.upper()} is {getattr(settings, name)}; it must be at least 1"
                )
        return settings


def _parse(name: str, text: str, kind: Callable[[str], object]) -> object:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{name} is {text!r}; it must be a number") from None
