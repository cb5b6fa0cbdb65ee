import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = (F.linear(x, left_proj) * mask * F.linear(x, left_gate).sigmoid_()).permute(0, 3, 1, 2).half()
    right = (F.linear(x, right_proj) * mask * F.linear(x, right_gate).sigmoid_()).permute(0, 3, 2, 1).half()
    scale = 1 / x.shape[1]
    out = torch.matmul(left * scale, right).permute(0, 2, 3, 1).float() * x.shape[1]
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear((out * F.linear(x, out_gate).sigmoid_()).contiguous(), to_out)
