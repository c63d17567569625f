"""The documentation. What can be generated from the code is: `python -m docs.generate`, or `make docs`."""
