from torch.optim.lr_scheduler import LambdaLR


def noam(optimizer, width, warmup):
    base = optimizer.param_groups[0]["lr"]

    def rate(step):
        step = step + 1
        return width**-0.5 * min(step**-0.5, step * warmup**-1.5) / base

    return LambdaLR(optimizer, rate)
