"""`python -m clearhead` is the same program as `clearhead`."""

from .cli.main import main

if __name__ == "__main__":
    main()
