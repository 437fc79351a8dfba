"""What must hold of the mended file; the words for each are in exercise.yaml."""

import torch

Q, K, V = torch.randn(3, 2, 5, 8, generator=torch.Generator().manual_seed(0))


def rows_sum_to_one_while_training(user):
    torch.manual_seed(0)
    sums = user.attend(Q, K, V, 0.5, True)[1].sum(-1)
    assert torch.allclose(sums, torch.ones(2, 5)), f"row sums: {[round(x, 2) for x in sums[0].tolist()]}"


def dropout_still_works(user):
    torch.manual_seed(0)
    output, weights = user.attend(Q, K, V, 0.5, True)
    assert not torch.allclose(output, weights @ V), "in training the output must come from dropped weights"


def nothing_drops_when_not_training(user):
    output, weights = user.attend(Q, K, V, 0.5, False)
    assert torch.allclose(output, weights @ V, atol=1e-6), "without training the output is weights @ v"
