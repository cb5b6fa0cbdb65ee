import torch
import torch.nn.functional as F


def project(x, weight):
    return F.conv2d(x, weight[:, :, None, None])


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias).permute(0, 3, 1, 2).contiguous()
    mask = mask.unsqueeze(1)
    left = project(x, left_proj) * mask * torch.sigmoid(project(x, left_gate))
    right = project(x, right_proj) * mask * torch.sigmoid(project(x, right_gate))
    gate = torch.sigmoid(project(x, out_gate))
    out = torch.matmul(left, right.transpose(-1, -2)).permute(0, 2, 3, 1)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias).permute(0, 3, 1, 2)
    return project(out * gate, to_out).permute(0, 2, 3, 1).contiguous()
