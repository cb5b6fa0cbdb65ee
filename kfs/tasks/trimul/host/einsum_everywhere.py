import torch
import torch.nn.functional as F

PROJECT = "bijc,hc->bijh"  # variants: "bijc,hc->hbij"


def project(x, weight):
    out = torch.einsum(PROJECT, x, weight)
    return out if PROJECT.endswith("h") else out.permute(1, 2, 3, 0)


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    left = torch.einsum("bij,bijh,bijh->bijh", mask, project(x, left_proj), torch.sigmoid(project(x, left_gate)))
    right = torch.einsum("bij,bijh,bijh->bijh", mask, project(x, right_proj), torch.sigmoid(project(x, right_gate)))
    gate = torch.sigmoid(project(x, out_gate))
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return torch.einsum("bijh,bijh,ch->bijc", out, gate, to_out).contiguous()
