"""The recorder of GPUs: `supervisor` starts `writer`, which watches `sampler`; each is a process of its own."""
