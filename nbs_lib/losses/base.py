"""What all loss modules share: hyper-parameters shown in ``repr``, a reduction, the switch for validation."""

from torch import nn

from nbs_lib.validation import check_reduction


class Criterion(nn.Module):
    """A loss in the style of ``torch.nn``: ``criterion(scores, target)``; all its settings are keyword arguments.

    Hyper-parameters are checked when the module is made and may be reassigned later (say, to anneal the scale); they
    are checked again on every call.
    """

    def __init__(self, *, reduction: str = "mean", validate: bool = True) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)
        self.validate = validate

    def extra_repr(self) -> str:
        """The settings, as they would be written in the call."""
        common = ("reduction", "validate")
        own = [name for name in vars(self) if not name.startswith("_") and name not in ("training", *common)]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in (*own, *common))
