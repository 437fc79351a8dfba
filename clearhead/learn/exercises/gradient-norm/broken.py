def total_norm(model):
    total = 0.0
    for parameter in model.parameters():
        total += parameter.grad.norm().item()
    return total
