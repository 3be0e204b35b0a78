"""Tasks of Luigi whose work is done by jobs of AWS Batch: a square, and a sum of squares."""

from __future__ import annotations

import luigi
from luigi.contrib.batch import BatchTask


class Square(BatchTask):
    number = luigi.IntParameter()
    job_definition = "square"
    poll_time = 1

    @property
    def parameters(self) -> dict[str, str]:
        return {"number": str(self.number), "file": self.output().path}

    def output(self) -> luigi.LocalTarget:
        return luigi.LocalTarget(f"square-{self.number}.txt")


class Total(BatchTask):
    job_definition = "total"
    poll_time = 1

    def requires(self) -> list[Square]:
        return [Square(number=3), Square(number=4)]

    @property
    def parameters(self) -> dict[str, str]:
        return {"file": self.output().path}

    def output(self) -> luigi.LocalTarget:
        return luigi.LocalTarget("total.txt")


class Broken(BatchTask):
    job_definition = "broken"
    poll_time = 1
