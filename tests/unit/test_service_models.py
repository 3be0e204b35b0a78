"""botocore's models are found without a list of all services, and messages still have the list."""

from __future__ import annotations

import botocore.loaders
import botocore.session
import pytest
from botocore.exceptions import UnknownServiceError

from batchyard.service_models import avoid_listing


@pytest.fixture
def loader() -> botocore.loaders.Loader:
    session = botocore.session.Session()
    avoid_listing(session)
    return session.get_component("data_loader")


class ListingLoader(botocore.loaders.Loader):  # type: ignore[misc]
    """Keeps for which kinds of model all services were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed_kinds: list[str] = []

    def list_available_services(self, type_name: str) -> list[str]:
        self.listed_kinds.append(type_name)
        services: list[str] = super().list_available_services(type_name)
        return services


def test_a_model_is_found_and_no_other_service_is_looked_for() -> None:
    session, loader = botocore.session.Session(), ListingLoader()
    session.register_component("data_loader", loader)
    avoid_listing(session)
    assert loader.load_service_model("sts", "service-2")["metadata"]["serviceId"] == "STS"
    assert loader.listed_kinds == []
    assert "s3" in list(loader.list_available_services("service-2"))
    assert set(loader.listed_kinds) == {"service-2"}


def test_the_services_are_those_that_botocore_lists(loader: botocore.loaders.Loader) -> None:
    services = loader.list_available_services("service-2")
    assert list(services) == botocore.session.Session().get_available_services()
    assert len(services) == len(list(services))
    assert "s3" in services
    assert "no-such-service" not in services


def test_a_kind_of_model_that_a_service_does_not_have(loader: botocore.loaders.Loader) -> None:
    assert "sts" not in loader.list_available_services("waiters-2")
    with pytest.raises(UnknownServiceError, match="Unknown service: 'sts'"):
        loader.load_service_model("sts", "waiters-2")
