"""The memory backends `mem0` and `qdrant`, which relay finds by their entry points (docs/MEMORY.md)."""
