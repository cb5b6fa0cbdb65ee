import torch
import torch.nn.functional as F

IN_PLACE = True  # variants: False


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    hidden = to_out.shape[1]
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    wide = F.linear(x, torch.cat([left_proj, right_proj, left_gate, right_gate, out_gate]))
    if IN_PLACE:
        sides = wide[..., : 2 * hidden]
        sides.mul_(mask.unsqueeze(-1)).mul_(wide[..., 2 * hidden : 4 * hidden].sigmoid_())
        gate = wide[..., 4 * hidden :].sigmoid_()
    else:
        gates = torch.sigmoid(wide[..., 2 * hidden :])
        sides = wide[..., : 2 * hidden] * mask.unsqueeze(-1) * gates[..., : 2 * hidden]
        gate = gates[..., 2 * hidden :]
    left, right = sides.permute(0, 3, 1, 2).chunk(2, dim=1)
    out = (left @ right.transpose(-1, -2)).permute(0, 2, 3, 1)
    out = F.layer_norm(out, (hidden,), out_norm_scale, out_norm_bias)
    return F.linear(out.mul_(gate), to_out)
