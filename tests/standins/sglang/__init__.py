"""In the place of SGLang, which needs a GPU."""
