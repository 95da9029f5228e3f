import pytest

from dml.wire.mesh.traffic import Collective, collectives, group_size, ring_bytes

# What XLA's CPU compiler says of a loop of 5 turns that holds one of 3, of a loop that
# ends when a number is large, and of a branch; without what is between.
COMPILED = """\
HloModule jit_f, is_scheduled=true, num_partitions=4

%body (param: (s32[], f32[4])) -> (s32[], f32[4]) {
  %ppermute.3 = f32[4]{0} collective-permute(%x.41), channel_id=1, \
source_target_pairs={{0,1},{1,0},{2,3},{3,2}}, metadata={op_name="jit(f)/ppermute"}
  ROOT %tuple.24 = (s32[], f32[4]{0}) tuple(%wrapped_add.1, %ppermute.3)
}

%outer (param.2: (s32[], f32[4])) -> (s32[], f32[4]) {
  %while.29 = (s32[], f32[4]{0}) while(%tuple.22), condition=%cond, body=%body, \
backend_config={"dynamic_variables":[],"known_trip_count":{"n":"3"}}
  %psum.13 = f32[4]{0} all-reduce(%x.29), channel_id=1, \
replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%region_3.3
  ROOT %tuple.27 = (s32[], f32[4]{0}) tuple(%wrapped_add, %psum.13)
}

%until (param.4: f32[4]) -> f32[4] {
  ROOT %all-reduce.1 = (f32[4]{0}, bf16[3,2]{1,0}) all-reduce(%param.4, %y), \
replica_groups=[1,4]<=[4], to_apply=%region_6.6
}

%branch (param.11: (f32[4])) -> (f32[8]) {
  %all_gather.2 = f32[8,2]{1,0} all-gather(%x.36), channel_id=1, \
replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}, use_global_device_ids=true
  %reduce_scatter.70 = f32[3,4]{1,0} reduce-scatter(%x.37), channel_id=1, \
replica_groups={{0,1},{2,3}}, dimensions={1}, to_apply=%region_1.0
}

ENTRY %main.13_spmd (param.9: f32[4]) -> f32[8] {
  %while.32 = (s32[], f32[4]{0}) while(%tuple.25), condition=%cond, body=%outer, \
backend_config={"known_trip_count":{"n":"5"}}
  %while.33 = f32[4]{0} while(%x.32), condition=%region_7.9_spmd, body=%until
  %all-to-all = (f32[2]{0}, f32[2]{0}) all-to-all(%slice, %slice.1), channel_id=1, \
replica_groups={{0,2},{1,3}}
  ROOT %conditional = (f32[8]{0}) conditional(%convert, %tuple.20, %tuple.21), \
branch_computations={%fused, %branch}
}
"""


def test_collectives_are_counted_with_the_turns_of_their_loops():
    found = [one[:4] for one in collectives(COMPILED)]
    assert found == [
        ("collective-permute", 16, 4, 15),
        ("all-reduce", 16, 2, 5),
        ("all-reduce", 16 + 12, 4, 1),  # nobody knows how often
        ("all-gather", 64, 2, 1),
        ("reduce-scatter", 2 * 48, 2, 1),
        ("all-to-all", 16, 2, 1),
    ]
    assert collectives(COMPILED)[0].op_name == "jit(f)/ppermute"


# As XLA writes what starts on a GPU and ends later: operands stand beside results.
PAIRS = "source_target_pairs={{0,1},{1,2},{2,0}}"
STARTED = [  # types, operation, groups, bytes
    ("f32[6,4]{1,0}", "all-reduce", "replica_groups={{0,1,2}}", 96),
    ("(f32[2,4], f32[6,4]{1,0})", "all-gather", "replica_groups=[1,3]<=[3]", 96),
    ("((f32[6,4]), f32[2,4]{1,0})", "reduce-scatter", "replica_groups=[1,3]<=[3]", 96),
    ("(bf16[8]{0}, bf16[8]{0}, u32[], u32[])", "collective-permute", PAIRS, 16),
    ("((s8[6]{0}), s8[6]{0})", "all-to-all", "replica_groups={}", 6),
]


@pytest.mark.parametrize("types, kind, groups, nbytes", STARTED)
def test_what_starts_and_ends_later_is_counted_once(types, kind, groups, nbytes):
    text = (
        "HloModule jit_f, num_partitions=3\n\nENTRY %main (x: f32[]) -> f32[] {\n"
        f'  %start = {types} {kind}-start(%x), {groups}, metadata={{op_name="of"}}\n'
        f"  ROOT %done = f32[6,4]{{1,0}} {kind}-done(%start)\n}}\n"
    )
    assert collectives(text) == [Collective(kind, nbytes, 3, 1, "of")]


MESH = "replica_groups=mesh['data'=2,'stage'=4,'tensor'=8]"


@pytest.mark.parametrize(
    "groups, size",
    (
        ("replica_groups={{0,2},{1,3}}", 2),
        ("replica_groups=[16,4]<=[8,8]T(1,0)", 4),
        ("replica_groups={}", 64),
        ("", 64),
        (MESH + " {'tensor'}", 8),
        (MESH + " {'data','stage'}", 8),
        (MESH + ", device_ids=([8,8]T(1,0)) {'data'}", 2),
        (MESH + " {'stage','tensor':(2)4}", 16),  # a part of an axis
        (MESH + " {}", 1),
    ),
)
def test_groups_of_every_notation_have_their_number_of_devices(groups, size):
    line = f"  %one = f32[4]{{0}} all-reduce(%x), channel_id=1, {groups}, to_apply=%add"
    assert group_size(line, 64) == size


def test_groups_of_an_unknown_notation_are_refused():
    with pytest.raises(ValueError, match=r"expected groups .* got replica_groups=<64>"):
        group_size("%one = f32[4] all-reduce(%x), replica_groups=<64>", 64)


def test_a_ring_sends_the_words_of_the_textbook():
    one = Collective("all-reduce", 100, 4, 1, "")
    assert ring_bytes(one) == 2 * 100 * 3 / 4
    two = [one._replace(kind=kind) for kind in ("reduce-scatter", "all-gather")]
    assert sum(map(ring_bytes, two)) == ring_bytes(one)
    assert ring_bytes(one._replace(kind="collective-permute")) == 100
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        assert ring_bytes(one._replace(kind=kind, size=1)) == 0
