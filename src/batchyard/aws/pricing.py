"""The Price List of AWS. One call per method, AWS's shapes out."""

from __future__ import annotations

from batchyard.aws.session import AwsSession, naming_errors

#: One of the few regions that have an endpoint of the Price List. It has the prices of all regions.
ENDPOINT_REGION = "us-east-1"
#: Without the last one, reservations and dedicated hosts are listed, too.
_LINUX = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
}


class PriceList:
    def __init__(self, session: AwsSession) -> None:
        """``session``: one of ENDPOINT_REGION."""
        self._session = session

    def linux_products(self, instance_type: str, region: str) -> list[str]:
        """Return the products of an instance type with Linux, each as JSON."""
        terms = {"instanceType": instance_type, "regionCode": region, **_LINUX}
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()
        ]
        with naming_errors(f"read the on-demand price of {instance_type}"):
            answer = self._session.client("pricing").get_products(
                ServiceCode="AmazonEC2", Filters=filters
            )
        return list(answer["PriceList"])
