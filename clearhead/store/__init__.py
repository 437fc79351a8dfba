"""Weights on disk: reading and writing checkpoint folders."""

from .adapter_folder import (
    ADAPTER_CONFIG,
    ADAPTER_INFO,
    ADAPTER_WEIGHTS,
    GENERATION_CONFIG,
    AdapterFolder,
    check_info,
    is_adapter_folder,
    read_adapter_folder,
    write_adapter_folder,
)
from .atomic import CONFIG_FILE, sync_file, sync_folder, write_file_atomically
from .folder import Checkpoint, read_folder
from .hub import resolve, resolve_offline
from .manifest import MANIFEST, has_manifest, size_and_hash, verify, write_manifest
from .pooling import pooling_files
from .shards import is_weights
from .tensors import FileVersion, Tensors
from .write import target_folder, write_folder

__all__ = [
    "gguf",  # a module of its own: its library is an extra
    "read_folder", "write_folder", "resolve", "Checkpoint", "Tensors",
    # for the other packages
    "CONFIG_FILE", "sync_file", "sync_folder", "write_file_atomically", "MANIFEST", "has_manifest",
    "write_manifest", "verify", "size_and_hash", "is_weights", "pooling_files", "FileVersion",
    "ADAPTER_CONFIG", "ADAPTER_INFO", "ADAPTER_WEIGHTS", "GENERATION_CONFIG", "AdapterFolder", "check_info",
    "is_adapter_folder", "read_adapter_folder", "write_adapter_folder", "resolve_offline", "target_folder",
]  # fmt: skip
