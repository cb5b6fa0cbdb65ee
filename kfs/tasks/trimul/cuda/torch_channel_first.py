import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden = to_out.shape[1]
    x = F.layer_norm(x, (dim,), norm_scale, norm_bias).view(b, s * s, dim)
    weights = torch.cat((left_proj, right_proj, left_gate, right_gate, out_gate))
    wide = torch.matmul(weights, x.mT).view(b, 5, hidden, s, s)
    wide[:, 2:].sigmoid_()
    sides = wide[:, :2].mul_(wide[:, 2:4]).mul_(mask[:, None, None])
    out = torch.matmul(sides[:, 0], sides[:, 1].mT).permute(0, 2, 3, 1).contiguous()
    out = F.layer_norm(out, (hidden,), out_norm_scale, out_norm_bias)
    out *= wide[:, 4].permute(0, 2, 3, 1)
    return F.linear(out, to_out)
