"""`python -m batchyard` is the command."""

from batchyard.cli.main import main

if __name__ == "__main__":
    main()
