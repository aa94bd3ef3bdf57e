"""The network allow-list of a container: a proxy on the host, at the other end of the stream.

A container has an empty network namespace. The runner listens on its loopback and carries the bytes
of each connection as frames. Here they reach a proxy that speaks HTTP/1.1 and nothing else.

``channels``, ``tls``, ``proxy_requests`` and ``routes`` decide, without input or output.
``proxy``, ``dialer`` and ``link`` do the input and output.
"""
