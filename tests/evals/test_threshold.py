from evals.threshold import JudgedHits, tune_threshold

GOOD = JudgedHits([0.9, 0.8, 0.3, 0.1], [True, False, False, False])


def test_only_the_first_ten_hits_count_and_one_without_relevance_is_never_left_out():
    hits = JudgedHits.of([("a", None), *((f"d{n}", 0.5) for n in range(20))], ["a", "d12"])

    assert (len(hits.relevance), hits.relevance[0], list(hits.right)) == (10, 1.0, [True] + [False] * 9)
    assert (hits.count(0.6), hits.kept(0.6), hits.precision(0.6)) == (1, 1.0, 1.0)


def test_the_highest_minimum_that_keeps_the_relevant_hits_is_chosen_and_proved():
    found = tune_threshold([GOOD] * 20, [GOOD] * 20, None)

    # 0.9 keeps the relevant hit and drops the three others: precision 1/4 before, 1 after.
    assert found["after"]["min_relevance"] == 0.9
    assert (found["before"]["verified_on"], found["after"]["verified_on"]) == (
        {"kept": 1.0, "precision": 0.25, "hits": 4.0},
        {"kept": 1.0, "precision": 1.0, "hits": 1.0},
    )
    assert (found["difference"]["mean"], found["lost"]["mean"], found["helps"]) == (0.75, 0.0, True)


def test_a_minimum_that_loses_relevant_hits_on_the_other_questions_is_not_recommended():
    weak = JudgedHits([0.4, 0.2], [True, False])

    found = tune_threshold([GOOD] * 20, [GOOD] * 10 + [weak] * 10, None)

    assert (found["after"]["min_relevance"], found["after"]["verified_on"]["kept"], found["helps"]) == (0.9, 0.5, False)


def test_without_a_fitting_minimum_the_one_in_force_stays():
    found = tune_threshold([JudgedHits([0.01], [True])] * 20, [GOOD] * 20, 0.3)

    assert (found["before"]["min_relevance"], found["after"]["min_relevance"], found["helps"]) == (0.3, 0.3, False)


def test_few_questions_prove_nothing():
    found = tune_threshold([GOOD] * 20, [GOOD] * 19, None)

    assert found == {"helps": False, "reason": "19 questions in a part; at least 20 are needed"}
