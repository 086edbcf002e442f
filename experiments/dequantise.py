"""Turns a quantised GGUF model into a plain model folder: ``python -m … FILE.gguf FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path


def dequantise(weights: Path, folder: Path) -> None:
    """Write the weights of a GGUF file as bfloat16 safetensors, with configuration and tokenizer.

    Parameters
    ----------
    weights
        A GGUF file of a Llama-like model.
    folder
        Where to write to.

    Raises
    ------
    ValueError
        Weights are missing from the file.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    settings = quantised.config.to_dict()
    # With it the model could not be saved: it would still count as quantised.
    settings.pop("quantization_config", None)
    plain = LlamaForCausalLM(LlamaConfig(**settings)).to(torch.bfloat16)
    state = {name: tensor.to(torch.bfloat16) for name, tensor in quantised.state_dict().items()}
    missing = plain.load_state_dict(state, strict=False).missing_keys
    if missing:
        raise ValueError(f"the file must hold all weights, got none for {', '.join(missing)}")
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    dequantise(Path(sys.argv[1]), Path(sys.argv[2]))
