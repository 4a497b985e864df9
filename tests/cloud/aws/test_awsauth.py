"""Who may join: by aws-auth or by an access entry, and what to do when neither knows the role."""

from __future__ import annotations

from dovetail.cloud.aws.awsauth import refusal
from dovetail.cloud.aws.provider import Aws
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account

ROLE = "arn:aws:iam::1:role/Nodes"


def mapped(arn: str, *groups: str) -> dict[str, str]:
    listed = "".join(f"\n  - {group}" for group in groups)
    return {"mapRoles": f"- rolearn: {arn}\n  username: system:node:{{{{EC2PrivateDNSName}}}}\n  groups:{listed}\n"}


def test_a_mapped_role_joins() -> None:
    assert refusal(ROLE, mapped(ROLE, "system:bootstrappers", "system:nodes"), admitted=False) is None


def test_an_access_entry_is_enough() -> None:
    assert refusal(ROLE, None, admitted=True) is None


def test_a_mapping_without_the_nodes_group_is_named() -> None:
    assert "without the group system:nodes" in str(refusal(ROLE, mapped(ROLE, "system:masters"), admitted=False))


def test_a_mapping_written_with_the_roles_path_never_matches_as_on_eks() -> None:
    path = "arn:aws:iam::1:role/team/Nodes"
    assert refusal(path, mapped(path, "system:nodes"), admitted=False) is not None
    assert refusal(path, mapped(ROLE, "system:nodes"), admitted=False) is None


def test_no_mapping_broken_mapping_and_no_role_are_refusals_with_a_remedy() -> None:
    for data in (None, {}, {"mapRoles": "::: not yaml"}, {"mapRoles": "just text"}):
        assert "access entry" in str(refusal(ROLE, data, admitted=False))
    assert "instance profile" in str(refusal(None, None, admitted=False))


def test_an_access_entry_that_may_not_be_asked_for_is_unknown_and_not_missing() -> None:
    assert refusal(ROLE, mapped(ROLE, "system:nodes"), admitted=None) is None
    said = str(refusal(ROLE, {}, admitted=None))
    assert "not known" in said and "eks:DescribeAccessEntry" in said and "neither" not in said
    assert refusal(ROLE, None, admitted=False, aws_auth_read=False) is None
    assert refusal(ROLE, None, admitted=None, aws_auth_read=False) is None


def test_an_access_entry_is_asked_for_by_its_role_and_denied_is_unknown(account: Account) -> None:
    """A cluster may have more entries than a page of the list."""

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        role = await aws.node_role(node_class)
        assert role is not None and role.admitted is False
        entries = account.endpoint.front.entries.setdefault("demo", {})
        entries[role.arn] = {"principalArn": role.arn}
        try:
            admitted = await aws.node_role(node_class)
            assert admitted is not None and admitted.admitted is True
            for rule in (f"GET /clusters/demo/access-entries/{role.arn}", "GET /clusters/demo/access-entries"):
                account.endpoint.trouble.add(ErrorRule("eks", rule, "AccessDeniedException", "no", status=403))
            unknown = await aws.node_role(node_class)
            assert unknown is not None and unknown.admitted is None
        finally:
            entries.clear()

    account.run(talk)
