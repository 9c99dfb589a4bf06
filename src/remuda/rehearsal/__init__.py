"""An invented cluster on invented time: failures, nodes, and the policies that live with them.

The decisions are the supervisor's own. `study` makes a comparison of a document, a trace and a few numbers; `plot`
its picture. Begin with `simulate`.
"""
