"""`python -m batchyard.worker` starts the worker."""

from batchyard.worker.main import main

if __name__ == "__main__":
    main()
