"""Questions that are shipped, as tasks of lm-eval. It looks for tasks in every file here that ends with .yaml."""
