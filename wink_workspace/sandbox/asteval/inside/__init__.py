"""The code of the server process and its children.

The host must not import this package: it loads asteval and restricts its own process.
"""
