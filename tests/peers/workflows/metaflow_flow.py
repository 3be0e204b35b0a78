"""Squares in a foreach, their sum in the join; or one task that fails."""

from metaflow import FlowSpec, Parameter, current, step


class PeersFlow(FlowSpec):
    count = Parameter("count", default=3)
    broken = Parameter("broken", default=-1, help="which of the tasks fails")

    @step
    def start(self):
        self.numbers = list(range(self.count))
        self.next(self.square, foreach="numbers")

    @step
    def square(self):
        if self.input == self.broken:
            raise ValueError(f"no square of {self.input} today")
        self.squared = self.input**2
        print("the square is", self.squared)
        self.next(self.join)

    @step
    def join(self, inputs):
        self.squares = [task.squared for task in inputs]
        self.total = sum(self.squares)
        self.next(self.end)

    @step
    def end(self):
        print("total", self.total, "after attempt", current.retry_count)


if __name__ == "__main__":
    PeersFlow()
