import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    sides = F.glu(F.linear(x, torch.cat([left_proj, right_proj, left_gate, right_gate])), dim=-1)
    sides *= mask.unsqueeze(-1)
    left, right = sides.chunk(2, dim=-1)
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    out *= F.linear(x, out_gate).sigmoid_()
    return F.linear(out, to_out)
