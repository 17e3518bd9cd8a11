"""Programs with their values, as folders: prog.leir (with its header), inputs.npz, outputs.npz."""

import numpy as np
import torch

VERSION = 1


def array(tensor):
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("V2")
    return tensor.numpy()


def write(folder, program, outputs):
    """`outputs` are the expected tensors in the order of the program's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prog.leir").write_text(f"# LEIR folder, version {VERSION}\n" + program.full)
    np.savez(folder / "inputs.npz", **{k: array(v) for k, v in program.inputs.items()})
    np.savez(folder / "outputs.npz", **{k: array(v) for k, v in zip(program.outputs, outputs)})
