"""What runs cost: the instance types that can run a step, and their prices.

- offers: the instance types that can run a step, with prices; pure
- market: prices from AWS, or from the dated list in the package
"""
