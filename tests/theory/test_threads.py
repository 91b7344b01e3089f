import torch

from nbs_lib.theory.threads import one_thread


def test_one_thread_inside_and_the_former_number_after_it():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert one_thread(torch.get_num_threads)() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_optimisers_of_small_tensors_keep_to_one_thread():
    """A loss that looks at the threads while it is minimised."""
    from nbs_lib.theory.minimise import minimise

    seen = set()

    def loss(cosines, target, scale):
        seen.add(torch.get_num_threads())
        return torch.nn.functional.cross_entropy(scale * cosines, target, reduction="none")

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        minimise(loss, 3, 2, scale=4.0, starts=1)
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
