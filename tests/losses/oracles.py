"""The losses once more, slow and plain: Python loops over float64 numbers, through the angle, from the papers."""

import math

import torch

from nbs_lib import losses


def log_sum_exp(values):
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


def angle(c):
    return math.acos(min(1.0, max(-1.0, c)))


def softmax_loss(logits, y):
    return log_sum_exp(logits) - logits[y]


def with_target(row, y, s, target):
    return [s * (target if j == y else c) for j, c in enumerate(row)]


def ce(row, y, label_smoothing=0.0):
    log_p = [z - log_sum_exp(row) for z in row]
    wanted = [label_smoothing / len(row) + (1 - label_smoothing) * (j == y) for j in range(len(row))]
    return -sum(q * lp for q, lp in zip(wanted, log_p, strict=True))


def normface(row, y, scale):
    return softmax_loss([scale * c for c in row], y)


def cosface(row, y, scale, margin):
    return softmax_loss(with_target(row, y, scale, row[y] - margin), y)


def arcface_logit(theta, m, beyond="linear"):
    if beyond == "easy":
        return math.cos(theta + m) if math.cos(theta) > 0 else math.cos(theta)
    if theta + m < math.pi or beyond == "none":
        return math.cos(theta + m)
    return {"linear": math.cos(theta) - m * math.sin(m), "psi": -math.cos(theta + m) - 2}[beyond]


def arcface(row, y, scale, margin, beyond="linear"):
    return softmax_loss(with_target(row, y, scale, arcface_logit(angle(row[y]), margin, beyond)), y)


def psi(phi):
    """(-1)^j cos φ - 2j on the stretch j π <= φ < (j+1) π."""
    j = math.floor(phi / math.pi)
    return (-1) ** j * math.cos(phi) - 2 * j


def sphereface(row, y, margin, scale):
    return softmax_loss(with_target(row, y, scale, psi(margin * angle(row[y]))), y)


def unified(row, y, scale, m1=1.0, m2=0.0, m3=0.0, beyond=None):
    theta = angle(row[y])
    if m1 == 1 and beyond != "psi":
        target = arcface_logit(theta, m2, beyond or "linear")
    else:
        target = math.cos(m1 * theta + m2) if beyond == "none" else psi(m1 * theta + m2)
    return softmax_loss(with_target(row, y, scale, target - m3), y)


def gm_softmax(row, y, scale, alpha1=1.0, beta1=0.0, alpha2=1.0, beta2=0.0):
    above = scale * (alpha1 * row[y] + beta1)
    below = [scale * (alpha2 * c + beta2) if j == y else scale * c for j, c in enumerate(row)]
    return log_sum_exp(below) - above


def focal(row, y, gamma):
    """Through the probability; the sum of the others keeps 1 - p from cancelling."""
    total = math.fsum(math.exp(z) for z in row)
    others = math.fsum(math.exp(z) for j, z in enumerate(row) if j != y)
    return -((others / total) ** gamma) * math.log(math.exp(row[y]) / total)


def ldam(row, y, scale, margin, class_counts):
    """C n^(-1/4), C from the condition that the rarest class has the whole margin."""
    c = margin * min(class_counts) ** (1 / 4)
    return softmax_loss(with_target(row, y, scale, row[y] - c / class_counts[y] ** (1 / 4)), y)


def lm_softmax(row, y, scale):
    return log_sum_exp([scale * (c - row[y]) for j, c in enumerate(row) if j != y]) / scale


def sample_margin(row, y):
    return -(row[y] - max(c for j, c in enumerate(row) if j != y))


def lm_softmax_total(rows, target, scale):
    terms = [scale * (c - row[y]) for row, y in zip(rows, target, strict=True) for j, c in enumerate(row) if j != y]
    return log_sum_exp(terms) / scale


def zero_centroid(prototypes, normalize=True):
    if normalize:
        prototypes = [[x / math.hypot(*w) for x in w] for w in prototypes]
    return sum((sum(column) / len(prototypes)) ** 2 for column in zip(*prototypes, strict=True))


class ForAnyK(torch.nn.Module):
    """LDAM for scores of any number of classes: the counts halve from class to class, down to one."""

    def __init__(self, **hyper):
        super().__init__()
        self.hyper = hyper

    def forward(self, scores, target):
        k = max(scores.shape[-1], 2)
        return losses.LDAM(class_counts=[max(512 >> j, 1) for j in range(k)], **self.hyper)(scores, target)


def build(name, **hyper):
    """``losses.build``, with class counts for whatever batch comes where a loss wants them and none are given."""
    return ForAnyK(**hyper) if name == "ldam" and "class_counts" not in hyper else losses.build(name, **hyper)
