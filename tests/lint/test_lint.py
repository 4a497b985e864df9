"""What lint finds: a manifest, a code, a line, a remedy."""

from __future__ import annotations

import copy
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.rewrite import rewrite
from dovetail.model.lint import CODES, LintFinding, SourceFile, lint
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.report import as_json, github, summary, text
from dovetail.model.lint.suggestions import fixed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GI = 1024**3


def instance_type(name: str, cpu: int, arch: str = "amd64") -> InstanceType:
    family, _, size = name.partition(".")
    labels = {
        "node.kubernetes.io/instance-type": (name,),
        "kubernetes.io/arch": (arch,),
        "kubernetes.io/os": ("linux",),
        "karpenter.k8s.aws/instance-family": (family,),
        "karpenter.k8s.aws/instance-category": (family[0],),
        "karpenter.k8s.aws/instance-size": (size,),
        "karpenter.k8s.aws/instance-cpu": (str(cpu),),
    }
    offerings = tuple(
        Offering(zone=f"ap-northeast-2{zone}", capacity_type=kind, price=1.0)
        for zone in "ac"
        for kind in ("spot", "on-demand")
    )
    return InstanceType(
        name=name, capacity={"cpu": cpu * 1000, "memory": 4 * cpu * GI}, overhead={}, labels=labels, offerings=offerings
    )


SHOP = InstanceCatalog(
    "ap-northeast-2",
    [instance_type("m5.large", 2), instance_type("c5.xlarge", 4), instance_type("m6g.large", 2, "arm64")],
)


def run(manifest: str, shop: InstanceCatalog | None = SHOP) -> list[LintFinding]:
    return lint([SourceFile("pool.yaml", textwrap.dedent(manifest))], NOW, shop)


def pool(requirements: str = "[]", extra: str = "", name: str = "default") -> str:
    return f"""\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      requirements: {requirements}
{textwrap.indent(textwrap.dedent(extra), "  ")}"""


def codes(manifest: str, shop: InstanceCatalog | None = SHOP) -> list[str]:
    return [each.code for each in run(manifest, shop)]


def only(manifest: str, code: str, shop: InstanceCatalog | None = SHOP) -> LintFinding:
    found = run(manifest, shop)
    assert [each.code for each in found] == [code], [text(each) for each in found]
    return found[0]


def test_a_sound_pool_is_left_alone() -> None:
    assert run(pool("[{key: kubernetes.io/arch, operator: In, values: [amd64]}]")) == []


@pytest.mark.parametrize(
    ("values", "key"),
    [("[c, t, m]", "instance-category"), ("[m5, c6g]", "instance-family"), ("[large, 2xlarge]", "instance-size")],
)
@pytest.mark.parametrize("shop", [SHOP, None])
def test_letters_for_instance_types_meant_a_category_a_family_or_a_size(
    values: str, key: str, shop: InstanceCatalog
) -> None:
    manifest = pool(f"[{{key: node.kubernetes.io/instance-type, operator: In, values: {values}}}]")
    finding = only(manifest, "DV104", shop)
    assert finding.hint == f"did you mean  key: karpenter.k8s.aws/{key} ?"
    again, count = fixed(manifest, [finding])
    assert count == 1
    assert f"key: karpenter.k8s.aws/{key}, operator: In, values: {values}" in again


def test_an_instance_type_that_is_not_offered_here_is_named() -> None:
    finding = only(pool("[{key: node.kubernetes.io/instance-type, operator: In, values: [m5.larg]}]"), "DV104")
    assert (finding.message, finding.line) == ('"m5.larg" is not an instance type in ap-northeast-2', 8)
    assert finding.hint == "did you mean  m5.large ?"


def test_one_bad_value_among_good_ones_is_a_warning() -> None:
    found = pool("[{key: topology.kubernetes.io/zone, operator: In, values: [ap-northeast-2a, ap-northeast-2x]}]")
    assert codes(found) == ["DV110"]


def test_no_value_that_a_node_has_is_an_error() -> None:
    assert codes(pool("[{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a]}]")) == ["DV105"]
    assert codes(pool('[{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ["900"]}]')) == ["DV105"]


def test_the_requirement_that_leaves_nothing_is_named() -> None:
    finding = only(
        pool(
            "[{key: kubernetes.io/arch, operator: In, values: [arm64]},"
            " {key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}]"
        ),
        "DV201",
    )
    assert finding.path == "spec.template.spec.requirements[1]"
    assert "1 before karpenter.k8s.aws/instance-category In [c], none after" in finding.message


def test_requirements_that_contradict_are_found() -> None:
    terms = "[{key: team, operator: In, values: [a]}, {key: team, operator: In, values: [b]}]"
    assert codes(pool(terms)) == ["DV108"]
    labelled = pool("[{key: team, operator: In, values: [a]}]").replace(
        "  template:\n", "  template:\n    metadata: {labels: {team: b}}\n"
    )
    assert codes(labelled) == ["DV108"]


def test_a_key_that_looks_like_a_label_of_nodes_is_doubted() -> None:
    finding = only(pool("[{key: kubernetes.io/arhc, operator: In, values: [amd64]}]"), "DV109")
    assert finding.hint == "did you mean  kubernetes.io/arch ?"


def test_limits_below_one_node() -> None:
    finding = only(pool(extra="limits: {cpu: 1, memory: 1000Gi}"), "DV202")
    assert "the smallest, m5.large, has 2" in finding.message
    assert codes(pool(extra="limits: {cpu: 0}")) == ["DV202"]


def test_a_budget_that_never_opens() -> None:
    assert codes(pool(extra='disruption: {budgets: [{nodes: "0"}]}')) == ["DV203"]
    weekend = '{nodes: "0", schedule: "0 0 * * 6", duration: 48h}'
    assert codes(pool(extra=f"disruption: {{budgets: [{weekend}]}}")) == []
    drift = only(pool(extra='disruption: {budgets: [{nodes: "0", reasons: [Drifted]}]}'), "DV203")
    assert drift.message == "no disruption is ever allowed for Drifted"


def test_a_schedule_that_cannot_be_read() -> None:
    bad = '{nodes: "1", schedule: "a b c d e", duration: 1h}'
    assert codes(pool(extra=f"disruption: {{budgets: [{bad}]}}")) == ["DV107"]


def test_expiry_without_budgets() -> None:
    expiring = pool().replace("      requirements", "      expireAfter: 24h\n      requirements")
    assert codes(expiring) == ["DV204"]
    assert codes(expiring + 'disruption: {budgets: [{nodes: "10%"}]}\n'.replace("dis", "  dis")) == []


def test_expiry_of_a_provisioner_is_reported_in_hours() -> None:
    old = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: default}\n"
    found = run(f"{old}spec: {{ttlSecondsUntilExpired: 2592000, providerRef: {{name: default}}}}\n", SHOP)
    assert any("nodes expire after 720h and nothing paces it" in each.message for each in found)


def test_spot_of_few_types_is_mentioned() -> None:
    assert codes(pool("[{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]")) == ["DV207"]


def test_a_field_of_another_generation_says_where_it_went() -> None:
    finding = only(pool(extra="disruption: {expireAfter: 24h}"), "DV102")
    assert finding.hint == "it belongs at spec.template.spec.expireAfter"
    finding = only(pool(extra="ttlSecondsAfterEmpty: 30"), "DV102")
    assert "consolidateAfter" in finding.hint


@pytest.mark.parametrize(
    ("extra", "repaired"),
    [
        ("disruption: {consolidateAfter: 1d}", "consolidateAfter: 24h"),
        ("disruption: {consolidateAfter: never}", "consolidateAfter: Never"),
        ("disruption: {consolidationPolicy: WhenUnderutilized}", "WhenEmptyOrUnderutilized"),
        ("disruption: {budgets: [{nodes: 5}]}", 'nodes: "5"'),
        ("wieght: 5", "weight: 5"),
        ("weight:  # none\nlimts:\n  cpu: 10", "limits:\n    cpu: 10"),
    ],
)
def test_safe_fixes_are_made_and_comments_stay(extra: str, repaired: str) -> None:
    manifest = "# ours\n" + pool(extra=extra)
    again, count = fixed(manifest, run(manifest))
    assert count >= 1
    assert repaired in again
    assert again.startswith("# ours\n")
    assert [each for each in run(again) if each.fixable] == []


def test_between_files_names_collide_and_classes_are_missed() -> None:
    provisioner = """\
    apiVersion: karpenter.sh/v1alpha5
    kind: Provisioner
    metadata: {name: default}
    spec: {providerRef: {name: other}}
    ---
    apiVersion: karpenter.k8s.aws/v1alpha1
    kind: AWSNodeTemplate
    metadata: {name: third}
    spec: {subnetSelector: {a: b}, securityGroupSelector: {a: b}}
    """
    found = run(pool() + "---\n" + textwrap.dedent(provisioner))
    by_code = {each.code: each for each in found}
    assert {"DV301", "DV302", "DV304"} <= set(by_code)
    collision = by_code["DV301"]
    assert collision.subject == 'Provisioner "default"'
    assert collision.message == 'NodePool "default" (pool.yaml:3) is the same NodePool "default" in v1'


def test_pools_that_take_the_same_pods_overlap() -> None:
    two = pool() + "---\n" + pool(name="other")
    assert codes(two) == ["DV303"]
    assert codes(pool() + "---\n" + pool(name="other", extra="weight: 5")) == []
    arm = "[{key: kubernetes.io/arch, operator: In, values: [arm64]}]"
    amd = "[{key: kubernetes.io/arch, operator: In, values: [amd64]}]"
    assert codes(pool(arm) + "---\n" + pool(amd, name="other")) == []


def test_variables_that_nothing_filled_in() -> None:
    manifest = """\
    apiVersion: karpenter.k8s.aws/v1
    kind: EC2NodeClass
    metadata: {name: default}
    spec:
      role: KarpenterNodeRole-${CLUSTER_NAME}
      amiSelectorTerms: [{alias: al2023@latest}]
      subnetSelectorTerms: [{tags: {a: b}}]
      securityGroupSelectorTerms: [{tags: {a: b}}]
    """
    assert only(manifest, "DV206").line == 5


def test_objects_in_a_list_are_seen_in_place() -> None:
    items = textwrap.indent(pool("[{key: kubernetes.io/arhc, operator: Exists}]"), "    ").replace(
        "    api", "  - api", 1
    )
    finding = only("apiVersion: v1\nkind: List\nitems:\n" + items, "DV109")
    assert finding.line == 11


def test_what_is_not_ours_is_left_alone() -> None:
    assert run("apiVersion: v1\nkind: Pod\nspec: {anything: 1}\n") == []
    assert run("") == []


def test_what_is_no_manifest_is_a_finding_with_its_place() -> None:
    assert only("just words", "DV004").line == 1
    assert only("apiVersion: v1\nkind: Pod\n---\n- a\n- b\n", "DV004").line == 4
    assert only("apiVersion: v1\nkind: Pod\nspec:\n  a: !!python/name:os.system x\n", "DV004").line == 4


def test_broken_yaml_is_a_finding_with_its_place() -> None:
    finding = only("a: [1, 2\nb: 3\n", "DV001")
    assert finding.line == 2


def test_a_key_given_twice_is_found() -> None:
    finding = only(pool(extra="weight: 1\nweight: 2"), "DV002")
    assert finding.message == '"weight" is given twice; the first is on line 9'


def test_the_forms_of_a_report() -> None:
    found = run(pool(extra="wieght: 5"))
    assert text(found[0]).splitlines() == [
        'error: NodePool "default": spec.wieght: no such field',
        "  did you mean  weight ?",
        "  pool.yaml:9:3   (DV101, dovetail lint --fix)",
    ]
    assert github(found[0]).startswith("::error file=pool.yaml,line=9,col=3,title=DV101::")
    assert '"code": "DV101"' in as_json(found)
    assert summary(found) == "1 error; 1 can be fixed with --fix"
    assert summary([]) == "nothing found"


def test_every_code_is_in_the_manual() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    assert [code for code in CODES if f"| {code} |" not in manual] == []


words = st.sampled_from(
    ["karpenter.sh/v1", "karpenter.sh/v1alpha5", "NodePool", "Provisioner", "EC2NodeClass", "In", "", "10%", "c"]
)
FIELDS = """apiVersion kind metadata name spec template requirements key operator values disruption budgets nodes limits
cpu labels items schedule amiSelectorTerms"""
fields = st.sampled_from(FIELDS.split())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(fields | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(fields, values, max_size=5), st.sampled_from(["NodePool", "Provisioner", "EC2NodeClass", "x"]))
def test_no_object_makes_lint_crash(obj: dict[str, object], kind: str) -> None:
    version = {"Provisioner": "karpenter.sh/v1alpha5", "EC2NodeClass": "karpenter.k8s.aws/v1"}
    dumped = yaml.safe_dump({**obj, "apiVersion": version.get(kind, "karpenter.sh/v1"), "kind": kind})
    found = run(dumped)
    fixed(dumped, found)


SEEDS = sorted((Path(__file__).parents[1] / "data" / "kinds" / "seeds").glob("*.yaml"))
WHOLE = [obj for seed in SEEDS for obj in yaml.safe_load_all(seed.read_text())]


@given(st.sampled_from(WHOLE), st.data())
def test_no_seed_with_one_thing_replaced_makes_lint_crash(obj: dict[str, object], data: st.DataObject) -> None:
    obj = copy.deepcopy(obj)
    place: Any = obj
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(values)
    dumped = yaml.safe_dump(obj)
    fixed(dumped, run(dumped))
    rewrite(dumped, "v1")


@pytest.mark.parametrize("text", ["foo", "karpenter.sh/v1", "720", "-"])
def test_a_lifetime_that_is_no_duration_is_one_finding(text: str) -> None:
    findings = run(f"""\
        apiVersion: karpenter.sh/v1beta1
        kind: NodePool
        metadata: {{name: default}}
        spec:
          template:
            spec:
              requirements: []
              nodeClassRef: {{name: default}}
          disruption: {{consolidationPolicy: WhenUnderutilized, expireAfter: "{text}"}}
        """)
    assert [finding.code for finding in findings if finding.severity == "error"] == ["DV103"]


@given(st.text() | st.text(st.sampled_from("ab:-{}[]&*!|>'\"#\n \t,?%@`0")))
def test_no_text_makes_lint_crash(anything: str) -> None:
    lint([SourceFile("x", anything)], NOW, SHOP)


def test_a_bomb_of_aliases_is_survived() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    lint([SourceFile("x", "apiVersion: karpenter.sh/v1\nkind: NodePool\n" + bomb)], NOW, None)
    lint([SourceFile("x", "a: &a\n  b: *a\n")], NOW, None)


def test_an_hpa_and_a_vpa_on_one_resource_are_named() -> None:
    both = """\
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: web}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      maxReplicas: 5
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
    ---
    apiVersion: autoscaling.k8s.io/v1
    kind: VerticalPodAutoscaler
    metadata: {name: web}
    spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
    """
    (found,) = run(textwrap.dedent(both))
    assert (found.code, found.path) == ("DV305", "spec.scaleTargetRef")
    assert found.message == 'holds a percentage of the cpu requests that VerticalPodAutoscaler "web" changes'
    assert (
        run(textwrap.dedent(both).replace("Utilization, averageUtilization: 50", "AverageValue, averageValue: 1")) == []
    )
