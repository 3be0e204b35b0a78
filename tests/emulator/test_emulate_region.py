"""`batchyard emulate --region`: what cannot be a region's name is refused before anything is
served."""

from __future__ import annotations

import pytest

from batchyard.emulator.names import is_region
from command_yard import Yard


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("us-east1", "did you mean us-east-1?"),
        ("EU-Central-1", "did you mean eu-central-1?"),
        ("here", "regions are named like us-east-1"),
        ("", "regions are named like us-east-1"),
        ("us-east-1a", "did you mean us-east-1?"),
    ],
)
def test_what_is_no_region_is_refused(yard: Yard, name: str, hint: str) -> None:
    message = yard("emulate", "--port", "0", "--region", name, code=2).stderr
    assert f"--region {name} is not the name of a region" in message and hint in message
    assert not (yard.folder / ".batchyard").exists()


def test_every_region_that_is_known_has_the_form() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    regions = {
        name
        for part in session.get_available_partitions()
        for name in session.get_available_regions("ec2", part)
    }
    assert len(regions) > 30
    assert [name for name in regions if not is_region(name)] == []
