import torch
import torch.nn.functional as F

LAYOUT = "channel_last"  # variants: "channel_first"


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    if LAYOUT == "channel_last":
        out = (left.unsqueeze(2) * right.unsqueeze(1)).sum(dim=3)
    else:
        left, right = left.permute(0, 3, 1, 2).contiguous(), right.permute(0, 3, 1, 2).contiguous()
        out = (left.unsqueeze(3) * right.unsqueeze(2)).sum(dim=4).permute(0, 2, 3, 1).contiguous()
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
