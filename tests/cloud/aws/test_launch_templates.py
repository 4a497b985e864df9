"""Launch templates: found again, never made twice, and deleted once unused for an hour."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.launch_templates import PREFIX, LaunchTemplateContent, LaunchTemplates


class Ec2:
    """Launch templates by name."""

    def __init__(self, *names: str) -> None:
        self.names = [f"{PREFIX}{name}" for name in names]
        self.made = 0

    async def __call__(self, service: str, operation: str, **asked: Any) -> dict[str, Any]:
        await asyncio.sleep(1.0)
        if operation == "create_launch_template":
            self.made += 1
            self.names.append(asked["LaunchTemplateName"])
        elif operation == "delete_launch_template":
            self.names.remove(asked["LaunchTemplateName"])
        wanted = [name for name in self.names if name in asked.get("LaunchTemplateNames", ())]
        return {"LaunchTemplates": [{"LaunchTemplateName": name} for name in wanted]}

    async def all(self, *what: str, **asked: Any) -> list[dict[str, Any]]:
        return [{"LaunchTemplateName": name} for name in (*self.names, "another-clusters")]


def templates(ec2: Ec2) -> LaunchTemplates:
    return LaunchTemplates(ec2, Clock(asyncio.get_running_loop()), "demo")


def blueprint(image: str) -> LaunchTemplateContent:
    return LaunchTemplateContent(
        family="AL2023",
        image_id=image,
        profile="p",
        groups=("sg-1",),
        user_data="",
        spec={},
        tags={},
        capacity_type="on-demand",
    )


def test_who_wants_a_template_that_is_being_made_waits_for_it() -> None:
    async def story() -> None:
        ec2 = Ec2()
        shop = templates(ec2)
        names = await asyncio.gather(*(shop.ensure(blueprint("ami-1"), "default") for _ in range(5)))
        assert len(set(names)) == 1 and ec2.made == 1
        other = templates(ec2)  # another life finds it
        assert await other.ensure(blueprint("ami-1"), "default") == names[0]
        assert await other.ensure(blueprint("ami-2"), "default") != names[0]
        assert ec2.made == 2

    run_virtual(story())


def test_a_template_goes_after_an_hour_without_use_and_one_of_an_earlier_life_gets_its_hour_too() -> None:
    async def story() -> None:
        ec2 = Ec2("old")
        shop = templates(ec2)
        used = await shop.ensure(blueprint("ami-1"), "default")
        for _ in range(3):
            await shop.sweep()
            assert ec2.names == [f"{PREFIX}old", used]
            await asyncio.sleep(1700)
            await shop.ensure(blueprint("ami-1"), "default")
        await shop.sweep()
        assert ec2.names == [used]
        await asyncio.sleep(3700)
        await shop.sweep()
        assert ec2.names == []

    run_virtual(story())


def test_a_class_that_goes_takes_its_templates_and_leaves_those_of_others() -> None:
    async def story() -> None:
        ec2 = Ec2("one", "two")
        await templates(ec2).release("default")
        assert ec2.names == []

    run_virtual(story())
