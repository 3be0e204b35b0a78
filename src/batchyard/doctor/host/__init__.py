"""The machine that the doctor runs on: gather its facts, check them."""
