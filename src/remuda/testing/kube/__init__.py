"""A Kubernetes API server with nodes that really run what pods say, in one directory on loopback: `KubeBed`.

`bed` is where to begin: it makes the parts and has the drills. `objects` keeps what there is, `api` answers requests
(`served`, `checks` and `selecting` say what it serves, refuses and finds), `server` is TLS and troubles on the way.
`jobs` and `nodes` are the controllers, `kubelet` and `container` run processes. No product code belongs here.
"""

from remuda.testing.kube.bed import KubeBed

__all__ = ["KubeBed"]
