import torch
import torch.nn.functional as F

DEPTH = 8  # variants: 2, 16


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    b, s, _, hidden = left.shape
    left = left.permute(0, 3, 1, 2).reshape(b * hidden, s, s)
    right = right.permute(0, 3, 2, 1).reshape(b * hidden, s, s)
    out = torch.zeros(b * hidden, s, s)
    for start in range(0, s, DEPTH):
        out.baddbmm_(left[:, :, start : start + DEPTH], right[:, start : start + DEPTH])
    out = out.view(b, hidden, s, s).permute(0, 2, 3, 1).contiguous()
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
