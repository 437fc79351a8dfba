from torch.optim.lr_scheduler import LambdaLR


def noam(optimizer, width, warmup):
    def rate(step):
        step = max(step, 1)
        return width**-0.5 * min(step**-0.5, step * warmup**-1.5)

    return LambdaLR(optimizer, rate)
