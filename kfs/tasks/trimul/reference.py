import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
