import torch
import torch.nn.functional as F


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    left, right, gates = [], [], []
    for i in range(x.shape[1]):
        row = F.layer_norm(x[:, i], x.shape[-1:], norm_scale, norm_bias)
        keep = mask[:, i].unsqueeze(-1)
        left.append(F.linear(row, left_proj) * keep * torch.sigmoid(F.linear(row, left_gate)))
        right.append(F.linear(row, right_proj) * keep * torch.sigmoid(F.linear(row, right_gate)))
        gates.append(torch.sigmoid(F.linear(row, out_gate)))
    right = torch.stack(right, dim=1)
    rows = []
    for a, gate in zip(left, gates, strict=True):
        row = torch.einsum("bkd,bjkd->bjd", a, right)
        row = F.layer_norm(row, row.shape[-1:], out_norm_scale, out_norm_bias)
        rows.append(F.linear(row * gate, to_out))
    return torch.stack(rows, dim=1)
