"""Small networks whose published results a CPU can repeat, each as its source has it, initialisation included."""

from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class LogSigmoid(nn.Module):
    """Outputs (N, classes) to logits of their sigmoids normalised to sum to one, as Keras's cross entropy takes them.

    p_i = sigmoid(z_i) / sum_j sigmoid(z_j) is the softmax of log sigmoid(z).
    """

    def forward(self, outputs: Tensor) -> Tensor:
        return F.logsigmoid(outputs.float())


def lenet5(classes: int, channels: int, size: int) -> nn.Module:
    """LeNet-5 with sigmoids and average pooling, Xavier initialisation (*Dive into Deep Learning*, section 7.6).

    https://github.com/d2l-ai/1day-notebooks/blob/21bedc9/notebooks-2/4-lenet.ipynb
    """
    left = (size // 2 - 4) // 2
    net = nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * left * left, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, classes)),
    )
    return _initialised(net, nn.init.xavier_uniform_)


def fashion_simple_net(classes: int, channels: int, size: int) -> nn.Module:
    """Two 3x3 convolutions and a hidden layer of 128, PyTorch's initialisation.

    https://github.com/kefth/fashion-mnist/blob/bde5377/model.py, FashionSimpleNet
    """
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.5), nn.Linear(64 * (size // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, classes)),
    )


def two_convolutions(classes: int, channels: int, size: int) -> nn.Module:
    """The network of TensorFlow's layers tutorial: two 5x5 convolutions, 1,024 hidden units, Xavier initialisation.

    https://github.com/zalandoresearch/fashion-mnist/blob/5e60fd2/benchmark/convnet.py
    """
    net = nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * (size // 4) ** 2, 1024), nn.ReLU(), nn.Dropout(0.4), nn.Linear(1024, classes)),
    )
    return _initialised(net, nn.init.xavier_uniform_)


def two_convolutions_83k(classes: int, channels: int, size: int) -> nn.Module:
    """Two 5x5 convolutions and one linear layer, PyTorch's initialisation: 83,466 parameters.

    https://github.com/hardmaru/pytorch_notebooks/blob/dc5aece/pytorch_tiny_custom_mnist_adam.ipynb
    """
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(64 * (size // 4) ** 2, classes),
    )


def mlp_256_128_100(classes: int, channels: int, size: int) -> nn.Module:
    """Three hidden layers of 256, 128 and 100 tanh units with dropout 0.4, He initialisation, sigmoid outputs.

    https://github.com/heitorrapela/fashion-mnist-mlp/blob/25b7478/fashion_mnist_mlp.py
    """
    widths = (channels * size * size, 256, 128, 100)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Tanh(), nn.Dropout(0.4)]
    return _initialised(nn.Sequential(*layers, nn.Linear(widths[-1], classes), LogSigmoid()), nn.init.kaiming_normal_)


def softmax_regression(classes: int, channels: int, size: int) -> nn.Module:
    """Multinomial logistic regression on the pixels, PyTorch's initialisation.

    With weight decay 1 / N over all N samples its one optimum is that of scikit-learn's `LogisticRegression` at C=1
    (https://scikit-learn.org/stable/modules/linear_model.html, "Multinomial Case").
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, classes))


def _initialised(net: nn.Module, weights: Callable[[Tensor], object]) -> nn.Module:
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            weights(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return net


SMALL_NETS = {
    net.__name__: net
    for net in (
        lenet5,
        fashion_simple_net,
        two_convolutions,
        two_convolutions_83k,
        mlp_256_128_100,
        softmax_regression,
    )
}
