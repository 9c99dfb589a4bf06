"""Kubernetes as a place where tasks run: Jobs in a namespace of somebody's cluster.

`backend` is where to begin; `client` is the only module that talks to the server. `config` finds server and user in
kubeconfigs, `credentials` gets what is shown to it. No other backend belongs here, and no client library of Kubernetes.
"""
