"""The program that runs inside the network namespace of a service, without any import of ours."""
