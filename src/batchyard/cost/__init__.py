"""What runs cost: the instance types that can run a step, their prices, and how a bill is split.

- offers: the instance types that can run a step, with prices; pure
- market: prices from AWS, or from the dated list in the package
- run_cost: what a run would cost on the types that fit
- bill: used, idle, lost and paid of instances; pure
- estimate: what a step is likely to cost, as a range; pure
"""
