"""The Podman engine and its containers: connection, limits, owners, removal."""
