import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    kept = mask.nonzero(as_tuple=True)
    rows, weight = x[kept], mask[kept].unsqueeze(-1)
    left = x.new_zeros(*mask.shape, to_out.shape[1])
    right = torch.zeros_like(left)
    left[kept] = F.linear(rows, left_proj) * torch.sigmoid(F.linear(rows, left_gate)) * weight
    right[kept] = F.linear(rows, right_proj) * torch.sigmoid(F.linear(rows, right_gate)) * weight
    gate = torch.sigmoid(F.linear(x, out_gate))
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
