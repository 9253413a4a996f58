"""Convolutional networks in PyTorch as torchvision has them: the same architecture, the same names. Besides, they
have stems for small pictures, any width, and any number of blocks."""
from torch import nn

MOBILENET_STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                    (6, 320, 1, 1)]


def scaled(channels, multiple):
    """A multiple of 8 near channels * multiple, not less than 90 % of it."""
    wanted = channels * multiple
    result = max(8, int(wanted + 4) // 8 * 8)
    return result + 8 if result < 0.9 * wanted else result


def convolution(inputs, outputs, kernel=1, stride=1, groups=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)


def convolution_norm(*sizes):
    return nn.Sequential(convolution(*sizes), nn.BatchNorm2d(sizes[1]), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = [convolution_norm(inputs, hidden)] if expansion > 1 else []
        self.conv = nn.Sequential(*layers, convolution_norm(hidden, hidden, 3, stride, hidden),
                                  convolution(hidden, outputs), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes=1000, cifar=False, width=1.0, stages=None):
        super().__init__()
        channels = scaled(32, width)
        blocks = [convolution_norm(3, channels, 3, 1 if cifar else 2)]
        shrinks_first = True
        for expansion, wanted, count, stride in stages or MOBILENET_STAGES:
            outputs = scaled(wanted, width)
            if stride > 1 and shrinks_first:
                shrinks_first = False
                stride = 1 if cifar else stride
            for i in range(count):
                blocks.append(InvertedResidual(channels, outputs, stride if i == 0 else 1, expansion))
                channels = outputs
        last = scaled(1280, max(1.0, width))
        self.features = nn.Sequential(*blocks, convolution_norm(channels, last))
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(last, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Residual(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        sizes = [(inputs, width, 1), (width, width, 3, stride), (width, outputs, 1)] if bottleneck else [
            (inputs, width, 3, stride), (width, width, 3)]
        for i, size in enumerate(sizes, 1):
            setattr(self, f"conv{i}", convolution(*size))
            setattr(self, f"bn{i}", nn.BatchNorm2d(size[1]))
        self.layers = len(sizes)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.layers + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.layers:
                y = self.relu(y)
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, classes=1000, cifar=False, width=64, bottlenecks=False, stages=(2, 2, 2, 2)):
        super().__init__()
        self.conv1 = convolution(3, width, 3) if cifar else convolution(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        inputs, self.stages = width, len(stages)
        for stage, count in enumerate(stages, 1):
            blocks = []
            for i in range(count):
                blocks.append(Residual(inputs, width, 2 if stage > 1 and i == 0 else 1, bottlenecks))
                inputs = 4 * width if bottlenecks else width
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            width *= 2
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))
