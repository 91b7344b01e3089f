"""Retrieval against pencil cases, a slow loop in float64, and scikit-learn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from nbs_lib import metrics

QUERY = torch.tensor([[1.0, 0.0]])


def on_circle(*degrees):
    """Unit vectors in the plane: the score with QUERY falls with the angle."""
    radians = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack((radians.cos(), radians.sin()), 1)


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def search(gallery_ids, *, cameras=None, query_id=1, degrees=None):
    gallery = on_circle(*(degrees or [10 * (n + 1) for n in range(len(gallery_ids))]))
    cameras = None if cameras is None else (ids(0), ids(*cameras))
    return metrics.retrieve(QUERY.double(), gallery, (ids(query_id), ids(*gallery_ids)), cameras)


def loop(query, gallery, query_ids, gallery_ids, query_cameras, gallery_cameras):
    """The protocol, an image at a time; a list of (AP, rank of the first match) or None for a skipped query."""
    found = []
    for q, identity, camera in zip(query, query_ids.tolist(), query_cameras.tolist(), strict=True):
        kept = []
        for g, other, where in zip(gallery, gallery_ids.tolist(), gallery_cameras.tolist(), strict=True):
            if other == -1 or (other == identity and where == camera):
                continue
            kept.append((float(q @ g / (q.norm() * g.norm())), other == identity))
        matches = [score for score, right in kept if right]
        if not matches or identity == -1:
            found.append(None)
            continue
        precision = [sum(r for s, r in kept if s >= m) / sum(1 for s, _ in kept if s >= m) for m in matches]
        best = max(matches)
        found.append((sum(precision) / len(matches), 1 + sum(1 for s, right in kept if s >= best and not right)))
    return found


class TestByHand:
    def test_average_precision_is_precision_at_each_match(self):
        """Matches at ranks 1, 3, 4: (1/1 + 2/3 + 3/4) / 3."""
        found = search([1, 2, 1, 1, 3])
        assert found.mean_average_precision == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
        assert (found.cmc(1), found.cmc(5), found.queries, found.skipped) == (1, 1, 1, 0)

    def test_rank_of_the_first_match(self):
        found = search([2, 3, 1, 1])
        assert found.first_match.tolist() == [3]
        assert [found.cmc(k) for k in (1, 2, 3, 10)] == [0, 0, 1, 1]

    def test_same_camera_is_taken_out_for_the_same_identity_only(self):
        """The nearest image is the query's own camera; the second, of another identity and that camera, stays."""
        found = search([1, 2, 1], cameras=[0, 0, 1])
        assert found.first_match.tolist() == [2]
        assert found.mean_average_precision == pytest.approx(1 / 2)

    def test_junk_is_taken_out_and_distractors_stay(self):
        assert search([-1, -1, 1]).first_match.tolist() == [1]
        assert search([0, 0, 1]).first_match.tolist() == [3]

    def test_ties_count_against_the_match(self):
        """Match and wrong image at the same angle: as if the wrong one came first, in any order of the gallery."""
        for gallery_ids in ([1, 2], [2, 1]):
            found = search(gallery_ids, degrees=[10, 10])
            assert found.first_match.tolist() == [2]
            assert found.mean_average_precision == 0.5

    def test_two_matches_in_a_tie_with_one_wrong_image(self):
        found = search([1, 2, 1], degrees=[10, 10, 10])
        assert found.first_match.tolist() == [2]
        assert found.mean_average_precision == pytest.approx(2 / 3)

    def test_queries_without_a_match_are_skipped_and_counted(self):
        query, gallery = on_circle(0, 0, 0), on_circle(10, 20)  # 5 is there, but on its own camera only
        cameras = (ids(0, 0, 0), ids(0, 1))
        found = metrics.retrieve(query, gallery, (ids(1, 7, 5), ids(5, 1)), cameras)
        assert (found.queries, found.skipped) == (1, 2)
        assert found.first_match.tolist() == [2, 0, 0]
        assert found.mean_average_precision == 0.5
        assert found.average_precision.isnan().tolist() == [False, True, True]
        assert found.cmc(2) == 1

    def test_a_junk_query_is_skipped(self):
        found = metrics.retrieve(on_circle(0, 0), on_circle(10, 20), (ids(-1, 1), ids(-1, 1)))
        assert (found.queries, found.skipped) == (1, 1)

    def test_every_image_looks_for_the_others(self):
        """Row numbers as cameras take out the image itself, and nothing else."""
        features, people = on_circle(0, 1, 90, 91), ids(1, 1, 2, 2)
        found = metrics.retrieve(features, features, (people, people), (torch.arange(4), torch.arange(4)))
        assert found.first_match.tolist() == [1] * 4

    def test_length_of_features_plays_no_part(self):
        people, lengths = ids(1, 2, 1), torch.tensor([[5.0], [0.1], [2.0]])
        gallery = on_circle(10, 20, 30)
        one, other = (metrics.retrieve(QUERY.double(), g, (ids(1), people)) for g in (gallery, gallery * lengths))
        assert torch.equal(one.first_match, other.first_match)


def random_case(seed, queries=9, images=40, people=6, grid=3):
    generator = torch.Generator().manual_seed(seed)

    def draw(high, count):
        return torch.randint(high, (count,), generator=generator)

    # unit vectors with whole-number cosines of few values, so that scores tie exactly
    def features(count):
        rows = torch.zeros(count, grid, dtype=torch.float64)
        rows[torch.arange(count), draw(grid, count)] = 1
        return rows

    q, g = (
        (features(queries), features(images))
        if seed % 2
        else (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (queries, images))
    )
    return q, g, draw(people, queries), draw(people + 2, images) - 1, draw(2, queries), draw(2, images)


class TestAgainstOthers:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 10_000))
    def test_loop(self, seed):
        q, g, qi, gi, qc, gc = random_case(seed)
        wanted = loop(q, g, qi, gi, qc, gc)
        if not any(wanted):
            return
        found = metrics.retrieve(q, g, (qi, gi), (qc, gc))
        assert found.skipped == wanted.count(None)
        for precision, rank, want in zip(
            found.average_precision.tolist(), found.first_match.tolist(), wanted, strict=True
        ):
            if want is None:
                assert math.isnan(precision)
                assert rank == 0
            else:
                assert (precision, rank) == (pytest.approx(want[0]), want[1])

    @pytest.mark.parametrize("seed", range(6))
    def test_sklearn(self, seed):
        q, g, qi, gi, _, _ = random_case(seed, images=60)
        gi = gi.clamp(min=0)
        found = metrics.retrieve(q, g, (qi, gi)).average_precision
        scores = torch.nn.functional.normalize(q) @ torch.nn.functional.normalize(g).T
        for row, identity, precision in zip(scores, qi.tolist(), found.tolist(), strict=True):
            if (gi == identity).any():
                assert precision == pytest.approx(average_precision_score((gi == identity).numpy(), row.numpy()))

    @pytest.mark.parametrize("cells", [1, 41, 100])
    def test_chunks_change_nothing(self, monkeypatch, cells):
        q, g, qi, gi, qc, gc = random_case(2)
        whole = metrics.retrieve(q, g, (qi, gi), (qc, gc))
        monkeypatch.setattr("nbs_lib.metrics.retrieval._CELLS", cells)
        parts = metrics.retrieve(q, g, (qi, gi), (qc, gc))
        assert torch.equal(parts.first_match, whole.first_match)
        assert parts.average_precision.tolist() == pytest.approx(whole.average_precision.tolist(), nan_ok=True)

    def test_half_precision_is_lifted(self):
        q, g, qi, gi, _, _ = random_case(4)
        found = metrics.retrieve(q.bfloat16(), g.bfloat16(), (qi, gi))
        wanted = metrics.retrieve(q.bfloat16().double(), g.bfloat16().double(), (qi, gi))
        assert found.mean_average_precision == pytest.approx(wanted.mean_average_precision, abs=1e-6)


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"query": torch.ones(2)}, r"query must be floating point \(N, d\)"),
            ({"gallery": torch.ones(0, 2)}, r"gallery must be floating point \(N, d\), N > 0, got \(0, 2\)"),
            ({"query": torch.ones(0, 2)}, "query must be"),
            ({"gallery": torch.ones(3, 5)}, "query has 2 dimensions, gallery 5"),
            ({"query": torch.tensor([[math.nan, 1.0]])}, "query holds a feature that is not finite"),
            ({"identities": (ids(1), ids(1, 2))}, r"identities of the gallery must be int64 \(3,\)"),
            ({"identities": (torch.ones(1), ids(1, 2, 3))}, "identities of the queries must be int64"),
            ({"cameras": (ids(0, 0), ids(1, 2, 3))}, r"cameras of the queries must be int64 \(1,\)"),
            ({"identities": (ids(9), ids(1, 2, 3))}, "none of the 1 queries has a match in its gallery of 3 images"),
        ],
    )
    def test_is_named(self, change, named):
        call = {"query": QUERY, "gallery": torch.rand(3, 2), "identities": (ids(1), ids(1, 2, 3))} | change
        with pytest.raises(ValueError, match=named):
            metrics.retrieve(**call)

    @pytest.mark.parametrize("k", [0, -1, 1.0, True])
    def test_k(self, k):
        with pytest.raises(ValueError, match="k must be an integer of at least 1"):
            search([1]).cmc(k)
