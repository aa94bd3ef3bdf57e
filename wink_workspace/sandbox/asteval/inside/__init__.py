"""What runs in the server and in its children, and nowhere else.

The host never imports this package: it loads asteval, and takes its process apart.
"""
