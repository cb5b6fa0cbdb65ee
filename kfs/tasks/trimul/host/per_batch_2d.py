import torch


def norm(x, weight, bias):
    return torch.layer_norm(x, x.shape[-1:], weight, bias)


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    out = torch.empty(b, s * s, dim)
    for n in range(b):
        rows = norm(x[n].view(s * s, dim), norm_scale, norm_bias)
        keep = mask[n].view(s * s, 1)
        left = torch.mm(rows, left_proj.t()).mul_(torch.mm(rows, left_gate.t()).sigmoid_()).mul_(keep)
        right = torch.mm(rows, right_proj.t()).mul_(torch.mm(rows, right_gate.t()).sigmoid_()).mul_(keep)
        planes = torch.bmm(left.t().reshape(-1, s, s), right.t().reshape(-1, s, s).transpose(1, 2))
        rows = torch.mm(rows, out_gate.t()).sigmoid_().mul_(norm(planes.view(-1, s * s).t(), out_norm_scale, out_norm_bias))
        torch.mm(rows, to_out.t(), out=out[n])
    return out.view(b, s, s, dim)
