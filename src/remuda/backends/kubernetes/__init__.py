"""Kubernetes as a place where tasks run: Jobs in a namespace of somebody's cluster.

`backend` is where to begin; `client` is the only module that talks to the server. `config` finds the server and who asks in
kubeconfigs, `credentials` gets what is shown to it. No other backend and no client library of Kubernetes belongs here.
"""
