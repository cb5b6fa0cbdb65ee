import torch
import torch.nn.functional as F

WHERE = "all"  # variants: "triangle"


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    if WHERE == "all":
        x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate = (
            t.double() for t in (x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate)
        )
        out_norm_scale, out_norm_bias, to_out = out_norm_scale.double(), out_norm_bias.double(), to_out.double()
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    out = torch.einsum("bikd,bjkd->bijd", left.double(), right.double()).to(left.dtype)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out).float()
