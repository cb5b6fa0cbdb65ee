import numpy as np
import torch


def norm_in_place(x, weight, bias):
    x -= x.mean(axis=-1, keepdims=True)
    x *= 1 / np.sqrt(np.einsum("pc,pc->p", x, x)[:, None] / np.float32(x.shape[1]) + np.float32(1e-5))
    x *= weight
    x += bias
    return x


def sigmoid_in_place(x):
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += np.float32(1)
    return np.reciprocal(x, out=x)


def kernel(*inputs):
    (
        x,
        mask,
        norm_scale,
        norm_bias,
        left_proj,
        right_proj,
        left_gate,
        right_gate,
        out_gate,
        out_norm_scale,
        out_norm_bias,
        to_out,
    ) = (t.numpy() for t in inputs)
    b, s, _, dim = x.shape
    hidden = to_out.shape[1]
    x = norm_in_place(x.reshape(-1, dim).copy(), norm_scale, norm_bias)
    wide = np.concatenate([left_proj, right_proj, left_gate, right_gate]) @ x.T
    sides = wide[: 2 * hidden]
    sides *= sigmoid_in_place(wide[2 * hidden :])
    sides *= mask.reshape(-1)
    planes = sides.reshape(2, hidden, b, s, s)
    out = np.matmul(planes[0], planes[1].transpose(0, 1, 3, 2)).reshape(hidden, -1).T.copy()
    norm_in_place(out, out_norm_scale, out_norm_bias)
    out *= sigmoid_in_place(x @ out_gate.T)
    return torch.from_numpy((out @ to_out.T).reshape(b, s, s, dim))
