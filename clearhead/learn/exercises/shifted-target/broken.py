def teacher_forcing(target):
    inputs = target
    labels = target
    return inputs, labels
