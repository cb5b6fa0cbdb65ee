import torch

SIGMOID = "exp"  # variants: "tanh"


def norm(x, weight, bias):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def sigmoid(x):
    if SIGMOID == "exp":
        return 1.0 / (1.0 + torch.exp(-x))
    return 0.5 * torch.tanh(0.5 * x) + 0.5


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = norm(x, norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = torch.matmul(x, left_proj.t()) * mask * sigmoid(torch.matmul(x, left_gate.t()))
    right = torch.matmul(x, right_proj.t()) * mask * sigmoid(torch.matmul(x, right_gate.t()))
    gate = sigmoid(torch.matmul(x, out_gate.t()))
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    return torch.matmul(norm(out, out_norm_scale, out_norm_bias) * gate, to_out.t())
