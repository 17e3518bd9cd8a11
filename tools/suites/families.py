"""Further families of networks in the transformers package, one small seeded layer of each, against eager PyTorch.

Each goes through `cleave.compile` with the extents of its example; f32, off by at most 1e-5 of the largest magnitude. Exit code 0
when all agree. `tools/conformance models` has the networks that are looked at more closely.

Runs under a Python that has PyTorch, `transformers` and the package (PYTHONPATH=python build/venv/bin/python).
"""

import json
import time

TOLERANCE = 1e-5
SMALL = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64)
TEXT = SMALL | dict(vocab_size=101)
HALVES = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
              decoder_ffn_dim=64, vocab_size=101)  # fmt: skip
WAVES = dict(conv_dim=(8, 8), conv_kernel=(4, 4), conv_stride=(2, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
             num_conv_pos_embedding_groups=2)  # fmt: skip
# name: (class, its configuration, what it is given)
FAMILIES = {
    "bart": ("Bart", HALVES, "ids"),
    "bloom": ("Bloom", dict(hidden_size=32, n_head=2, n_layer=1, vocab_size=101), "ids"),
    "clip_text": ("CLIPText", TEXT | dict(max_position_embeddings=16), "ids"),
    "clip_vision": ("CLIPVision", SMALL | dict(image_size=32, patch_size=8), "pixels"),
    "convnext": ("ConvNext", dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), "pixels"),
    "deberta": ("DebertaV2", TEXT | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8), "ids"),
    "dinov2": ("Dinov2", dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, image_size=32, patch_size=8), "pixels"),
    "distilbert": ("DistilBert", dict(dim=32, n_heads=2, n_layers=1, hidden_dim=64, vocab_size=101), "ids"),
    "falcon": ("Falcon", TEXT, "ids"),
    "gemma2": ("Gemma2", TEXT | dict(num_key_value_heads=1, head_dim=16), "ids"),
    "gptneox": ("GPTNeoX", TEXT, "ids"),
    "mamba": ("Mamba", dict(hidden_size=32, num_hidden_layers=1, vocab_size=101, state_size=4), "ids"),
    "opt": ("OPT", dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, ffn_dim=64, vocab_size=101, word_embed_proj_dim=32),
            "ids"),
    "phi3": ("Phi3", TEXT | dict(num_key_value_heads=1, pad_token_id=0), "ids"),
    "resnet": ("ResNet", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), "pixels"),
    "roberta": ("Roberta", TEXT | dict(max_position_embeddings=40), "ids"),
    "segformer": ("Segformer", dict(depths=[1, 1], num_encoder_blocks=2, sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3],
                                    strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2]), "pixels"),
    "swin": ("Swin", dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 1], num_heads=[2, 2], window_size=4), "pixels"),
    "wav2vec2": ("Wav2Vec2", TEXT | WAVES, "waves"),
    "whisper": ("Whisper", HALVES | dict(num_mel_bins=8, max_source_positions=16, pad_token_id=0), "mels"),
}  # fmt: skip


def declare(parser):
    parser.add_argument("--only", action="append", choices=sorted(FAMILIES), help="default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def check(name):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    import cleave  # noqa: PLC0415

    family, configuration, takes = FAMILIES[name]
    torch.manual_seed(0)
    inner = getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**configuration)).eval()
    ids = torch.randint(0, 100, (2, 9))
    given = {"ids": {"input_ids": ids}, "pixels": {"pixel_values": torch.randn(2, 3, 32, 32)},
             "waves": {"input_values": torch.randn(2, 100)},
             "mels": {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids}}[takes]  # fmt: skip

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, **named):
            return self.inner(**named)[0]

    start, module = time.monotonic(), First()
    with torch.no_grad():
        program = cleave.compile(module, (), given)
        got, want = program(**given).double(), module(**given).double()
    off = float((got - want).abs().max() / want.abs().max())
    return {"family": name, "off": off, "seconds": round(time.monotonic() - start, 1), "ok": off <= TOLERANCE}


def run(arguments):
    import transformers  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    results = []
    for name in arguments.only or sorted(FAMILIES):
        try:
            results.append(check(name))
        except Exception as error:  # one family does not end the others
            results.append({"family": name, "ok": False, "error": str(error).splitlines()[0]})
        if not arguments.json:
            print("  ".join(f"{k} {v}" for k, v in results[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps({"schema": "cleave.conformance.families/1", "results": results}, indent=1))
    return 0 if all(r["ok"] for r in results) else 1
