"""Folders of the library adapters (AdapterHub): their config and tensors in, a tuning and our parameters out.

    adapter_config.json     {"config": {...}, "hidden_size", "model_type", "name", "version", ...}
    adapter.safetensors     encoder.layer.0.output.adapters.NAME.adapter_down.0.weight, ...

They are read and not written: a tuned model is saved in our own format, or in PEFT's. The formats are those
of adapters 1.3.
"""

from .bottleneck import bottleneck_parameters, bottleneck_tuning

__all__ = ["bottleneck_parameters", "bottleneck_tuning"]
