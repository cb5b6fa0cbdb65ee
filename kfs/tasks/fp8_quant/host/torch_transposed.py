def kernel(x):
    tokens, hidden = x.shape
    columns = x.t().contiguous().view(hidden // 128, 128, tokens)
    scale = columns.abs().amax(dim=1).clamp(min=1e-10) / 448.0
    q = (columns / scale.unsqueeze(1)).clamp(-448.0, 448.0)
    return q.view(hidden, tokens).t().contiguous(), scale.t().contiguous()
