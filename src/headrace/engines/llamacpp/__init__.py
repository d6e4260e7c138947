"""All that is particular to llama.cpp's server."""
