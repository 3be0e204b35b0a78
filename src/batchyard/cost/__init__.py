"""What runs cost: the instance types that can run a step, their prices, and how a bill is split.

- offers: the instance types that can run a step, with prices; pure
- market: prices from AWS, or from the dated list in the package
- run_cost: what a run would have cost on the types that fit
- plan_cost: what a plan is likely to cost, from earlier runs
- advice: what each step needs, from measured use, and which types fit
- caps: the cap of a new run
- bill: used, idle, lost and paid of instances; pure
- estimate: what a step is likely to cost, as a range; pure
"""
