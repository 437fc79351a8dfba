def teacher_forcing(target):
    inputs = target[:, :-1]
    labels = target[:, 1:]
    return inputs, labels
