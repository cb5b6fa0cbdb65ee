import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    hidden = to_out.shape[1]
    weights = torch.cat([left_proj, right_proj, left_gate, right_gate, out_gate])
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + 1e-5)
    folded = weights * norm_scale
    wide = F.linear(x, folded) - mean * folded.sum(dim=1)
    wide = wide.mul_(scale).add_(weights @ norm_bias)
    wide[..., 2 * hidden :].sigmoid_()
    sides = wide[..., : 2 * hidden] * wide[..., 2 * hidden : 4 * hidden] * mask.unsqueeze(-1)
    left, right = sides.split(hidden, dim=-1)
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    variance, mean = torch.var_mean(out, dim=-1, correction=0, keepdim=True)
    out = (out - mean) * torch.rsqrt(variance + 1e-5)
    gate = wide[..., 4 * hidden :]
    return F.linear(out * gate, to_out * out_norm_scale) + F.linear(gate, to_out * out_norm_bias)
