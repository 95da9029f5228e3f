"""The parameter-server protocol: client, server, replicas."""
