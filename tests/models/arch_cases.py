"""Small random models of every architecture, all float32: the keys and tensors of their files, and the files.

The numbers are such that each of them matters: sliding windows are shorter than the text, caps are within the range of
scores, the epsilon of norms is not far below the mean square of a row, and biases, norms and factors are far from 0 and 1.
"""
import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, HEAD_SIZE, FEED_FORWARD, VOCABULARY = 96, 4, 2, 64, 72, 80
TOKENS, CONTEXT = 530, 768  # three pages of the KV cache

QKV = ["attn_q", "attn_k", "attn_v"]
EVERY_BIAS = QKV + ["attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def yarn(factor, original, attention=1.0, **more):
    return {"rope.scaling.type": "yarn", "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": original, "rope.scaling.attn_factor": attention} | more


def long_and_short(original):
    return {"factors": {"rope_factors_long": (3, 9), "rope_factors_short": (1, 1.5)},
            "keys": {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": original,
                     "rope.scaling.attn_factor": 1.2}}


def window(positions, **more):
    return {"attention.sliding_window": positions} | more


# Name of the case, its architecture, and how it differs from a model with 2 layers.
QWEN2 = {"width": HEADS * HEAD_SIZE, "biases": QKV,
         "omitted": ["attention.key_length", "attention.value_length", "rope.dimension_count"]}
PHI3 = {"width": HEADS * HEAD_SIZE, "rotated": 48}
LARGEST = {"tokens": 40, "gain": 0.5, "keys": window(9)}
CASES = {
    "llama": ("llama", {"own_output": True, "biases": EVERY_BIAS}),
    "llama-partial": ("llama", {"rotated": 32, "kv_heads": 1, "output_bias": True, "keys": {"attention.scale": 0.2}}),
    "llama-linear": ("llama", {"kv_heads": 4, "omitted": ["attention.head_count_kv", "rope.freq_base"],
                               "keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}}),
    "llama-factors": ("llama", {"base": 5e5, "factors": {"rope_freqs": (1, 8)}}),
    "llama-yarn": ("llama", {"keys": yarn(4.0, 256)}),
    "llama-long": ("llama", long_and_short(CONTEXT - 1)),
    "llama-short": ("llama", long_and_short(CONTEXT)),
    "qwen2": ("qwen2", QWEN2),
    "qwen2-yarn": ("qwen2", QWEN2 | {"base": 1e6, "keys": yarn(8.0, 256, 1.3, **{"rope.scaling.yarn_beta_fast": 16.0,
                                                                                 "rope.scaling.yarn_beta_slow": 2.0})}),
    "qwen3": ("qwen3", {"head_size": 80, "own_output": True, "keys": {"rope.scale_linear": 2.0}}),
    "smollm3": ("smollm3", {"layers": 5, "keys": {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}}),
    "phi3": ("phi3", PHI3 | {"own_output": True}),
    "phi3-window": ("phi3", PHI3 | {"keys": window(70)}),
    "phi3-long": ("phi3", PHI3 | long_and_short(CONTEXT - 1)),
    "phi3-short": ("phi3", PHI3 | long_and_short(CONTEXT)),
    "gemma": ("gemma", {"head_size": 128}),
    "gemma2": ("gemma2", {"layers": 3, "keys": window(40, attn_logit_softcapping=4.0, final_logit_softcapping=3.0)}),
    "gemma2-page": ("gemma2", {"keys": window(257)}),
    "gemma2-defaults": ("gemma2", {"layers": 1, "heads": 1, "kv_heads": 1, "tokens": 4110}),
    "gemma2-largest": ("gemma2", LARGEST | {"layers": 46}),
    "gemma3": ("gemma3", {"layers": 7, "base": 1e6, "keys": window(40, **{"rope.scaling.type": "linear",
                                                                          "rope.scaling.factor": 8.0})}),
    "gemma3-pattern": ("gemma3", {"layers": 4, "base": 1e6,
                                  "keys": window(300, **{"rope.freq_base_swa": 5e3,
                                                         "attention.sliding_window_pattern": 3})}),
    "gemma3-global": ("gemma3", {"base": 1e6}),
    "gemma3-largest": ("gemma3", LARGEST | {"layers": 62}),
    "rwkv7": ("rwkv7", {"width": 128}),
    "rwkv7-heads": ("rwkv7", {"head_size": 48}),
    "arwkv7": ("arwkv7", {"width": 128, "norm_of_heads": True}),
    "arwkv7-bare": ("arwkv7", {"width": 128, "gate": False}),
}


class Model:
    """The keys and tensors of a file, made from random numbers."""

    def __init__(self, architecture, options):
        self.architecture, self.options = architecture, options
        self.random = np.random.default_rng(7)
        self.tensors = {}
        self.layers, self.width = options.get("layers", 2), options.get("width", WIDTH)
        self.vocabulary = options.get("vocabulary", VOCABULARY)
        self.keys = {"vocab_size": self.vocabulary, "context_length": 512, "embedding_length": self.width,
                     "block_count": self.layers, "feed_forward_length": FEED_FORWARD}
        self.matrix("token_embd", self.vocabulary, self.width, 1.5)
        if self.architecture.endswith("rwkv7"):
            self.make_rwkv()
        else:
            self.make_llama()
        self.keys |= options.get("keys", {})
        for key in options.get("omitted", []):
            del self.keys[key]
        self.ids = self.random.integers(0, self.vocabulary, options.get("tokens", TOKENS)).tolist()
        self.context = max(CONTEXT, -len(self.ids) // 256 * -256)  # llama.cpp rounds up to a multiple of 256

    def add(self, name, values):
        self.tensors[name] = values.astype(np.float32)

    def matrix(self, name, rows, columns, gain=None):
        gain = gain or self.options.get("gain", 1.5)
        self.add(name + ".weight", self.random.standard_normal((rows, columns)) * gain / np.sqrt(columns))

    def vector(self, name, columns, mean=0.0, spread=0.3):
        self.add(name, mean + spread * self.random.standard_normal(columns))

    def norm(self, name, columns):
        self.vector(name + ".weight", columns, 1)

    def make_llama(self):
        options, width = self.options, self.width
        heads, kv_heads = options.get("heads", HEADS), options.get("kv_heads", KV_HEADS)
        head_size = options.get("head_size", HEAD_SIZE)
        rotated = options.get("rotated", head_size)
        self.keys |= {"attention.head_count": heads, "attention.head_count_kv": kv_heads,
                      "attention.key_length": head_size, "attention.value_length": head_size,
                      "attention.layer_norm_rms_epsilon": 0.02, "rope.dimension_count": rotated,
                      "rope.freq_base": options.get("base", 1e4)}
        self.norm("output_norm", width)
        if options.get("own_output"):
            self.matrix("output", self.vocabulary, width)
        if options.get("output_bias"):
            self.vector("output.bias", self.vocabulary)
        for name, (low, high) in options.get("factors", {}).items():
            self.add(name + ".weight", np.sort(self.random.uniform(low, high, rotated // 2)))
        queries, kv = heads * head_size, kv_heads * head_size
        rows = {"attn_q": queries, "attn_k": kv, "attn_v": kv, "ffn_gate": FEED_FORWARD, "ffn_up": FEED_FORWARD}
        if self.architecture == "phi3":
            rows = {"attn_qkv": queries + 2 * kv, "ffn_up": 2 * FEED_FORWARD}
        for i in range(self.layers):
            layer = f"blk.{i}."
            for name, count in rows.items():
                self.matrix(layer + name, count, width)
            self.matrix(layer + "attn_output", width, queries)
            self.matrix(layer + "ffn_down", width, FEED_FORWARD)
            for name in options.get("biases", []):
                self.vector(layer + name + ".bias", rows.get(name, width))
            self.norm(layer + "attn_norm", width)
            self.norm(layer + "ffn_norm", width)
            if self.architecture in ("qwen3", "gemma3"):
                self.norm(layer + "attn_q_norm", head_size)
                self.norm(layer + "attn_k_norm", head_size)
            if self.architecture in ("gemma2", "gemma3"):
                self.norm(layer + "post_attention_norm", width)
                self.norm(layer + "post_ffw_norm", width)

    def make_rwkv(self):
        width, is_plain = self.width, self.architecture == "rwkv7"
        head_size = self.options.get("head_size", HEAD_SIZE)
        ranks = {"w": 16, "a": 24, "v": 8, "g": 32}
        has_gate = self.options.get("gate", True)
        self.keys |= {"wkv.head_size": head_size, "attention.decay_lora_rank": ranks["w"],
                      "attention.iclr_lora_rank": ranks["a"], "attention.value_residual_mix_lora_rank": ranks["v"],
                      "attention.gate_lora_rank": ranks["g"] if has_gate else 0, "attention.head_count": 0,
                      "attention.layer_norm_epsilon" if is_plain else "attention.layer_norm_rms_epsilon": 0.02}
        if not is_plain:
            self.keys |= {"token_shift_count": 1}
        self.matrix("output", self.vocabulary, width)

        def norm(name):
            self.norm(name, width)
            if is_plain:
                self.vector(name + ".bias", width)

        norm("output_norm")
        if is_plain:
            norm("token_embd_norm")
        for i in range(self.layers):
            layer = f"blk.{i}."
            norm(layer + "attn_norm")
            for name in ("receptance", "key", "value", "output"):
                self.matrix(layer + "time_mix_" + name, width, width, 1)
            for name, rank in ranks.items():
                if name == "g" and not has_gate:
                    continue
                if name == "v" and i == 0:  # unused; their files repeat the rank of a
                    rank = ranks["a"]
                self.matrix(f"{layer}time_mix_{name}1", rank, width)
                self.matrix(f"{layer}time_mix_{name}2", width, rank)
                if name != "g":
                    self.vector(f"{layer}time_mix_{name}0.weight", width, 0, 1)
            mixes = 6 if has_gate else 5
            self.add(layer + "time_mix_lerp_fused.weight", self.random.uniform(0, 1, (mixes, 1, 1, width)))
            self.vector(layer + "time_mix_k_k.weight", width, 1)
            if i == 1:  # keys without a direction
                self.tensors[layer + "time_mix_k_k.weight"][:head_size] = 0
            self.vector(layer + "time_mix_k_a.weight", width, 1)
            self.vector(layer + "time_mix_r_k.weight", width)
            if is_plain or self.options.get("norm_of_heads"):
                self.norm(layer + "time_mix_ln", width)
                self.vector(layer + "time_mix_ln.bias", width)
            if is_plain:
                norm(layer + "attn_norm_2")
                self.add(layer + "channel_mix_lerp_k.weight", self.random.uniform(0, 1, (1, 1, width)))
                self.matrix(layer + "channel_mix_key", FEED_FORWARD, width, 1)
                self.matrix(layer + "channel_mix_value", width, FEED_FORWARD, 1)
            else:
                norm(layer + "ffn_norm")
                self.matrix(layer + "ffn_gate", FEED_FORWARD, width)
                self.matrix(layer + "ffn_up", FEED_FORWARD, width)
                self.matrix(layer + "ffn_down", width, FEED_FORWARD)

    def sharpen_gates(self):
        """Gates so large that GELU is 0 or its input nearly everywhere; the layers' outputs stay as large as they were."""
        for i in range(self.layers):
            self.tensors[f"blk.{i}.ffn_gate.weight"] *= 1000
            self.tensors[f"blk.{i}.ffn_down.weight"] /= 1000

    def write(self, path, add_tokenizer=lambda writer: writer.add_tokenizer_model("no_vocab")):
        writer = gguf.GGUFWriter(path, self.architecture)
        add_tokenizer(writer)
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        for key, value in self.keys.items():
            add[type(value)](f"{self.architecture}.{key}", value)
        for name, values in self.tensors.items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
