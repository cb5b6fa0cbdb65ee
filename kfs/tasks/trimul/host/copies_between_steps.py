import torch
import torch.nn.functional as F

CLONES = 1  # variants: 4


def tidy(x):
    for _ in range(CLONES):
        x = x.transpose(1, -1).contiguous().transpose(1, -1).contiguous()
    return x


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = tidy(F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias))
    mask = mask.unsqueeze(-1).expand(-1, -1, -1, to_out.shape[1]).contiguous()
    left = tidy(F.linear(x, left_proj)) * mask * tidy(torch.sigmoid(F.linear(x, left_gate)))
    right = tidy(F.linear(x, right_proj)) * mask * tidy(torch.sigmoid(F.linear(x, right_gate)))
    gate = tidy(torch.sigmoid(F.linear(x, out_gate)))
    out = torch.einsum("bikd,bjkd->bijd", tidy(left), tidy(right))
    out = tidy(F.layer_norm(tidy(out), out.shape[-1:], out_norm_scale, out_norm_bias))
    return F.linear(tidy(out * gate), to_out)
