"""Let botocore find the model of a service without looking through those of all services.

Before botocore reads a model, it lists all services that have one: it opens the folders of more
than 400 services, for each kind of model. That took an eighth of a worker's start-up, and more of a
command that calls AWS. The worker has a copy of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def avoid_listing(botocore_session: Any) -> None:
    """Let the session look only for the models of services that it has a use for."""
    loader = botocore_session.get_component("data_loader")
    list_all = loader.list_available_services
    loader.list_available_services = lambda type_name: _Services(loader, type_name, list_all)


class _Services:
    """The names of the services that have a kind of model. All are listed only by an iteration."""

    def __init__(self, loader: Any, type_name: str, list_all: Callable[[str], list[str]]) -> None:
        self._loader = loader
        self._type_name = type_name
        self._list_all = list_all

    def __contains__(self, service: str) -> bool:
        # Not imported: botocore's own errors belong to the modules that call AWS.
        try:
            self._loader.list_api_versions(service, self._type_name)
        except Exception as exc:
            if type(exc).__name__ == "DataNotFoundError":
                return False
            raise
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._list_all(self._type_name))

    def __len__(self) -> int:
        return len(self._list_all(self._type_name))
