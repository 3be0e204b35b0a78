"""What every resource type of our own has in common: CloudFormation's questions, as moto puts them."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.core.common_models import CloudFormationModel

Document = dict[str, Any]


class Refused(Exception):
    """A resource that cannot be made, changed or deleted; the message goes into the stack's events."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class CannotReplace(Refused):
    """A replacement must have another name, and this one's is given by the template."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename "
            f"{name} and update the stack again."
        )


class Place(NamedTuple):
    """Where a stack is."""

    account_id: str
    region_name: str


class OwnModel(CloudFormationModel):
    """A resource type that moto does not have, or has wrong. A type says how one is made, changed and deleted; all
    three raise Refused where they fail."""

    TYPE: ClassVar[str]
    NAME_PROPERTY: ClassVar[str] = ""
    ATTRIBUTES: ClassVar[tuple[str, ...]] = ()

    #: what it took the place of is not to be deleted
    keeps_predecessor = False

    cf_resource_type: str
    logical_resource_id: str

    # -- what a type says -----------------------------------------------------------------------------------

    @property
    def physical_resource_id(self) -> str:
        raise NotImplementedError

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise UnformattedGetAttTemplateException()

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        """A new one. ``name`` is what moto would call it, ``logical_id`` what the template does."""
        raise NotImplementedError

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        """This one, changed; or another, which then replaces it: this one is deleted once nothing refers to it."""
        raise NotImplementedError

    def delete(self, place: Place) -> None:
        raise NotImplementedError

    # -- what moto asks -------------------------------------------------------------------------------------

    @classmethod
    def cloudformation_type(cls) -> str:
        return getattr(cls, "TYPE", cls.__name__)

    @classmethod
    def cloudformation_name_type(cls) -> str:
        return cls.NAME_PROPERTY

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in cls.ATTRIBUTES

    def is_created(self) -> bool:
        return True

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Self:
        place = Place(account_id, region_name)
        return cls.made(
            resource_name, cloudformation_json["Properties"], place, kwargs["LogicalId"]
        )

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Self:
        assert isinstance(original_resource, cls)
        place = Place(account_id, region_name)
        return original_resource.changed_to(
            new_resource_name, cloudformation_json["Properties"], place
        )

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str
    ) -> None:
        """Nothing is deleted by its name: `delete` does it."""
