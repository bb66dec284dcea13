"""The logits of every architecture in float64, written from the definitions of the models and not from the C sources.

Keys and tensors are named as in a GGUF file: keys without the architecture's name, matrices as [rows][columns]. All
positions are computed at once; state is kept nowhere.
"""
import numpy as np


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * weight


def layer_norm(x, weight, bias, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + epsilon) * weight + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    """The approximation by tanh, with which Gemma was trained."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


# ---- Llama and its relatives ----

# The files of these two have the rows of q and k reordered for rotary pairs of neighbours.
PAIRS_OF_NEIGHBOURS = ("llama", "smollm3")


def yarn_ramp(dimensions, base, first_context, fast, slow):
    """0 for the pairs that keep their frequency, 1 for interpolated pairs (Peng et al. 2023, appendix A)."""
    def pair_with(turns):
        return dimensions * np.log(first_context / (turns * 2 * np.pi)) / (2 * np.log(base))
    low = max(np.floor(pair_with(fast)), 0)
    high = min(np.ceil(pair_with(slow)), dimensions - 1)
    return np.clip((np.arange(dimensions // 2) - low) / max(high - low, 0.001), 0, 1)


def rotary_angles(keys, tensors, dimensions, base, is_scaled, context, count):
    """Angles [count][dimensions / 2], and the factor of their cosines and sines."""
    first_context = keys.get("rope.scaling.original_context_length", keys["context_length"])
    kind = keys.get("rope.scaling.type", "linear")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 1.0))
    if kind == "none" or not is_scaled:
        factor = 1.0
    frequencies = base ** (-np.arange(0, dimensions, 2) / dimensions)
    divisors = tensors.get("rope_freqs.weight")
    if divisors is None:
        divisors = tensors.get("rope_factors_long.weight" if context > first_context else "rope_factors_short.weight")
    if divisors is not None:
        frequencies = frequencies / divisors
    magnitude = keys.get("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":
        ramp = yarn_ramp(dimensions, base, first_context, keys.get("rope.scaling.yarn_beta_fast", 32.0),
                         keys.get("rope.scaling.yarn_beta_slow", 1.0))
        frequencies = frequencies / factor * ramp + frequencies * (1 - ramp)
        magnitude *= 1 + 0.1 * np.log(factor)
    else:
        frequencies = frequencies / factor
    return np.outer(np.arange(count), frequencies), magnitude


def rotate(x, angles, magnitude, neighbours):
    """x: [tokens][heads][head size]. Columns beyond the rotated ones stay."""
    pairs = angles.shape[1]
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if neighbours else \
                    (slice(0, pairs), slice(pairs, 2 * pairs))
    cos, sin = magnitude * np.cos(angles)[:, None], magnitude * np.sin(angles)[:, None]
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def attend(q, k, v, scale, cap, window):
    """A token sees itself and the tokens before it, with a window only the last `window` of these."""
    count, heads, head_size = q.shape
    distance = np.arange(count)[:, None] - np.arange(count)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    out = np.empty((count, heads, head_size))
    for head in range(heads):
        own = head // (heads // k.shape[1])
        scores = softcap(q[:, head] @ k[:, own].T * scale, cap)
        scores[hidden] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = shares / shares.sum(-1, keepdims=True) @ v[:, own]
    return out.reshape(count, -1)


def windows_of(architecture, keys):
    """For each layer its sliding window; 0 is none."""
    layers = keys["block_count"]
    if architecture == "phi3":
        return [keys.get("attention.sliding_window", 0)] * layers
    if architecture == "gemma2":  # a local layer, then a global one
        window = keys.get("attention.sliding_window", 4096)
        return [0 if i % 2 else window for i in range(layers)]
    if architecture == "gemma3":  # five local layers, then a global one
        window, period = keys.get("attention.sliding_window", 0), keys.get("attention.sliding_window_pattern", 6)
        return [0 if (i + 1) % period == 0 else window for i in range(layers)]
    return [0] * layers


def scores_scale(architecture, keys, head_size):
    """Gemma 2 27B and Gemma 3 27B divide by the root of the width of a head's share of the stream."""
    if "attention.scale" in keys:
        return keys["attention.scale"]
    if (architecture, keys["block_count"]) in (("gemma2", 46), ("gemma3", 62)):
        return (keys["embedding_length"] / keys["attention.head_count"]) ** -0.5
    return head_size ** -0.5


def llama_logits(architecture, keys, tensors, ids, context):
    is_gemma = architecture.startswith("gemma")
    has_post_norms = architecture in ("gemma2", "gemma3")
    epsilon, width = keys["attention.layer_norm_rms_epsilon"], keys["embedding_length"]
    heads = keys["attention.head_count"]
    kv_heads = keys.get("attention.head_count_kv", heads)
    head_size = keys.get("attention.key_length", width // heads)
    rotated = keys.get("rope.dimension_count", head_size)
    attention_cap = keys.get("attn_logit_softcapping", 50.0 if architecture == "gemma2" else 0)
    final_cap = keys.get("final_logit_softcapping", 30.0 if architecture == "gemma2" else 0)
    activation = gelu if is_gemma else silu
    count = len(ids)

    def project(x, name):
        return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)

    x = tensors["token_embd.weight"][ids]
    if is_gemma:
        x = x * np.sqrt(width)
    for i, window in enumerate(windows_of(architecture, keys)):
        layer = f"blk.{i}."

        def norm(x, name):
            return rms_norm(x, tensors[layer + name + ".weight"], epsilon)

        h = norm(x, "attn_norm")
        if architecture == "phi3":
            q, k, v = np.split(project(h, layer + "attn_qkv"), [heads * head_size, (heads + kv_heads) * head_size], -1)
        else:
            q, k, v = (project(h, layer + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = (part.reshape(count, -1, head_size) for part in (q, k, v))
        if architecture in ("qwen3", "gemma3"):
            q, k = norm(q, "attn_q_norm"), norm(k, "attn_k_norm")
        if not (architecture == "smollm3" and i % 4 == 3):
            is_local = architecture == "gemma3" and window > 0
            base = keys.get("rope.freq_base_swa", 1e4) if is_local else keys.get("rope.freq_base", 1e4)
            angles, magnitude = rotary_angles(keys, tensors, rotated, base, not is_local, context, count)
            q, k = (rotate(part, angles, magnitude, architecture in PAIRS_OF_NEIGHBOURS) for part in (q, k))
        a = project(attend(q, k, v, scores_scale(architecture, keys, head_size), attention_cap, window),
                    layer + "attn_output")
        x = x + (norm(a, "post_attention_norm") if has_post_norms else a)

        h = norm(x, "ffn_norm")
        if architecture == "phi3":
            gate, up = np.split(project(h, layer + "ffn_up"), 2, -1)
        else:
            gate, up = project(h, layer + "ffn_gate"), project(h, layer + "ffn_up")
        f = project(activation(gate) * up, layer + "ffn_down")
        x = x + (norm(f, "post_ffw_norm") if has_post_norms else f)
    x = rms_norm(x, tensors["output_norm.weight"], epsilon)
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    return softcap(x @ output.T + tensors.get("output.bias", 0), final_cap)


# ---- RWKV-7 ----

def row_before(x):
    return np.vstack([np.zeros_like(x[:1]), x[:-1]])


def rwkv7_time_mix(layer, tensors, head_size, h, first_values):
    """Peng et al. 2025, section 4. Returns what is added to the stream, and the values of the first layer."""
    def weight(name):
        return tensors[f"{layer}time_mix_{name}.weight"]

    def low_rank(x, name, activation=lambda x: x):
        return activation(x @ weight(name + "1").T) @ weight(name + "2").T

    def of_heads(x):
        return x.reshape(len(x), -1, head_size)

    before = row_before(h)
    mixed = [h + (before - h) * share.ravel() for share in weight("lerp_fused")]
    r, k, v = mixed[0] @ weight("receptance").T, mixed[2] @ weight("key").T, mixed[3] @ weight("value").T
    w = np.exp(-np.exp(-0.5) * sigmoid(weight("w0") + low_rank(mixed[1], "w", np.tanh)))
    a = sigmoid(weight("a0") + low_rank(mixed[4], "a"))
    if first_values is None:
        first_values = v
    else:
        v = v + (first_values - v) * sigmoid(weight("v0") + low_rank(mixed[3], "v"))
    removed = of_heads(k * weight("k_k"))
    removed = removed / np.maximum(np.sqrt(np.sum(removed * removed, -1, keepdims=True)), 1e-12)
    k = k * (1 + (a - 1) * weight("k_a"))
    r, w, k, v, a = map(of_heads, (r, w, k, v, a))

    state = np.zeros((r.shape[1], head_size, head_size))  # [heads][values][keys]
    y = np.empty_like(r)
    for t in range(len(h)):
        taken = np.einsum("hij,hj->hi", state, removed[t])
        state = state * w[t][:, None, :] - taken[:, :, None] * (removed[t] * a[t])[:, None, :] \
            + v[t][:, :, None] * k[t][:, None, :]
        y[t] = np.einsum("hij,hj->hi", state, r[t])
    if f"{layer}time_mix_ln.weight" in tensors:
        y = layer_norm(y, weight("ln").reshape(-1, head_size), tensors[f"{layer}time_mix_ln.bias"].reshape(-1, head_size),
                       64e-5)
    y = y + np.sum(r * k * weight("r_k").reshape(-1, head_size), -1, keepdims=True) * v
    y = y.reshape(len(h), -1)
    if f"{layer}time_mix_g1.weight" in tensors:
        gate_input = mixed[5]
        y = y * (sigmoid(gate_input @ weight("g1").T) @ weight("g2").T)
    return y @ weight("output").T, first_values


def rwkv7_logits(architecture, keys, tensors, ids):
    """ARWKV-7 has RMS norms and a gated feed-forward network in place of layer norms and a channel mix."""
    is_plain = architecture == "rwkv7"

    def norm(x, name):
        if is_plain:
            return layer_norm(x, tensors[name + ".weight"], tensors[name + ".bias"], keys["attention.layer_norm_epsilon"])
        return rms_norm(x, tensors[name + ".weight"], keys["attention.layer_norm_rms_epsilon"])

    x = tensors["token_embd.weight"][ids]
    if is_plain:
        x = norm(x, "token_embd_norm")
    first_values = None
    for i in range(keys["block_count"]):
        layer = f"blk.{i}."
        mixed, first_values = rwkv7_time_mix(layer, tensors, keys["wkv.head_size"], norm(x, layer + "attn_norm"),
                                             first_values)
        x = x + mixed
        if is_plain:
            h = norm(x, layer + "attn_norm_2")
            k = h + (row_before(h) - h) * tensors[layer + "channel_mix_lerp_k.weight"].ravel()
            inner = np.maximum(k @ tensors[layer + "channel_mix_key.weight"].T, 0) ** 2
            x = x + inner @ tensors[layer + "channel_mix_value.weight"].T
        else:
            h = norm(x, layer + "ffn_norm")
            inner = silu(h @ tensors[layer + "ffn_gate.weight"].T) * (h @ tensors[layer + "ffn_up.weight"].T)
            x = x + inner @ tensors[layer + "ffn_down.weight"].T
    return norm(x, "output_norm") @ tensors["output.weight"].T


def logits(architecture, keys, tensors, ids, context):
    """Logits [ids][vocabulary] of a file for which a context of `context` positions was asked."""
    tensors = {name: values.astype(np.float64) for name, values in tensors.items()}
    if architecture in ("rwkv7", "arwkv7"):
        return rwkv7_logits(architecture, keys, tensors, ids)
    return llama_logits(architecture, keys, tensors, ids, context)
