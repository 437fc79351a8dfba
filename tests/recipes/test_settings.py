def test_every_task_has_a_builder_and_every_builder_a_task() -> None:
    from clearhead.recipes.builders import BUILDERS
    from clearhead.recipes.settings import TASKS

    assert set(BUILDERS) == set(TASKS)
