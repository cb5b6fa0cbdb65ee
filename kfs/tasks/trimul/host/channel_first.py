import torch
import torch.nn.functional as F

GATE_WITH_SIDES = False  # variants: True


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden = to_out.shape[1]
    x = F.layer_norm(x, (dim,), norm_scale, norm_bias).view(b, s * s, dim)
    weights = [left_proj, right_proj, left_gate, right_gate] + ([out_gate] if GATE_WITH_SIDES else [])
    wide = torch.matmul(torch.cat(weights), x.transpose(1, 2)).view(b, -1, s, s)
    gates = wide[:, 2 * hidden :].sigmoid_()
    sides = wide[:, : 2 * hidden].mul_(gates[:, : 2 * hidden]).mul_(mask.unsqueeze(1))
    left, right = sides[:, :hidden], sides[:, hidden:]
    out = (left @ right.transpose(-1, -2)).permute(0, 2, 3, 1).contiguous()
    out = F.layer_norm(out, (hidden,), out_norm_scale, out_norm_bias)
    if GATE_WITH_SIDES:
        out *= gates[:, 2 * hidden :].permute(0, 2, 3, 1)
    else:
        out *= F.linear(x, out_gate).sigmoid_().view(b, s, s, hidden)
    return F.linear(out, to_out)
