//! Rules beyond the cases: reasons, notes, routes, `instances`, names, the watermark's stride.

use serde_json::json;
use tuplane_core::plan::{
    EdgeId, Kind, Parallelism, Role, Routing, When, case_json, dot, json as plan_json, plan,
    text as plan_text, unsupported_policies,
};

use super::helper::{edge, job, notes, planned, refused};

#[test]
fn a_rebalance_says_what_it_changed() {
    let dag = planned("- s = source\n- r = rebalance s\n- m = map r\n- out = sink m");
    let spread = edge(&dag, "s..m");
    let effect = spread.rebalance.as_ref().unwrap();
    assert_eq!(effect.stage, "r");
    assert!(effect.at.line > 0);
    assert_eq!(effect.changed, "targets are on all agents, not only on the sender's");
    assert!(
        spread.why.contains("any instance of `m`") && spread.why.contains(&effect.changed),
        "{}",
        spread.why
    );
    assert!(dag.notes.is_empty());
    assert_eq!(edge(&dag, "m..out").rebalance, None);
}

#[test]
fn a_rebalance_without_effect_is_noted() {
    for consumer in [
        "map_stateful r",
        "rolling_aggregate r",
        "aggregate r combine=false",
        "sink r type='total_parallelism_one'",
    ] {
        let tail = if consumer.starts_with("sink") { "" } else { "- out = sink c" };
        let dag = planned(&format!("- s = source\n- r = rebalance s\n- c = {consumer}\n{tail}"));
        assert_eq!(edge(&dag, "s..c").rebalance.as_ref().unwrap().changed, "", "{consumer}");
        let notes = notes(&dag, true);
        assert!(
            notes.len() == 1 && notes[0].starts_with("rebalance `r` has no effect on s..c: "),
            "{notes:?}"
        );
    }
    let dag = planned("- s = source\n- b = source\n- r = rebalance b\n- j = hash_join s,r\n- out = sink j");
    assert_eq!(
        notes(&dag, true),
        ["rebalance `r` has no effect on b..j/collector1: every agent gets every row of this side anyway"]
    );
}

#[test]
fn a_key_that_loses_to_the_grouping_key_is_noted() {
    let with = |key: &str| {
        planned(&format!(
            "- s = source\n- r = rebalance s key='{key}'\n- g = group_by r key='age'\n- a = aggregate g\n- out = sink a"
        ))
    };
    let dag = with("name");
    assert_eq!(
        edge(&dag, "s..a").rebalance.as_ref().unwrap().changed,
        "one aggregation stage over all agents instead of two, its key is not used"
    );
    let found = notes(&dag, true);
    assert!(
        found.len() == 1 && found[0].starts_with("the key of rebalance `r` has no effect on s..a: "),
        "{found:?}"
    );
    assert!(notes(&with("age"), true).is_empty());
}

#[test]
fn replaced_and_unread_views_are_noted() {
    let dag = planned(
        "- s = source\n- r1 = rebalance s key='k'\n- r2 = rebalance r1\n- r3 = rebalance s\n- g = group_by s key='k'\n- out = sink r2",
    );
    assert!(edge(&dag, "s..out").distributed && edge(&dag, "s..out").routing == Routing::Unicast);
    assert_eq!(
        notes(&dag, true),
        [
            "rebalance `r1` has no effect: rebalance `r2` takes its place",
            "rebalance `r3` has no effect: no stage reads it",
            "group_by `g` has no effect: no stage reads it",
        ]
    );
}

#[test]
fn an_incomplete_job_names_the_stage_and_the_view() {
    let error = refused("- s = source\n- m = map s\n- r = rebalance m\n- out = sink s");
    assert_eq!((error.kind, error.when), (Kind::Incomplete, When::Planning));
    assert_eq!(error.fault.stage.as_deref(), Some("m"));
    assert!(error.fault.help.unwrap().contains("rebalance `r`"));
}

#[test]
fn an_n_way_merge_is_a_chain_of_binary_ones() {
    let dag = planned(
        "- a = source\n- b = source\n- c = source\n- d = source\n- rb = rebalance b\n- rd = rebalance d key='k'\n\
         - mg = merge a,rb,c,rd parallelism=3\n- out = sink mg",
    );
    let vertices: Vec<_> = dag.vertices.iter().map(|v| (v.name.as_str(), v.label())).collect();
    assert_eq!(
        vertices[4..7],
        [
            ("merge", "mg/merge1".to_owned()),
            ("merge-2", "mg/merge2".to_owned()),
            ("merge-3", "mg".to_owned()),
        ]
    );
    assert!(dag.vertices[4..7].iter().all(|v| v.parallelism == Parallelism::PerAgent(3)));
    let seen: Vec<_> = dag.edges.iter().map(|e| (e.from.0, e.to.0, e.ordinal, e.distributed)).collect();
    assert_eq!(
        seen,
        [
            (0, 4, 0, false),
            (1, 4, 1, true),
            (4, 5, 0, false),
            (2, 5, 1, false),
            (5, 6, 0, false),
            (3, 6, 1, true),
            (6, 7, 0, false),
        ]
    );
}

#[test]
fn an_unkeyed_rebalance_may_not_break_order() {
    let error =
        refused("preserve_order = true\n- s = source\n- r = rebalance s\n- m = map r\n- out = sink m");
    assert_eq!((error.kind, error.when), (Kind::IsolatedRebalance, When::Planning));
    assert!(error.fault.message.contains("s..m") && error.fault.message.contains("preserve_order"));
    let error = refused("- s = source\n- r = rebalance s\n- t = add_timestamps r\n- out = sink t");
    assert_eq!(error.kind, Kind::IsolatedRebalance);
    // The probe side of a join ignores it instead, and the plan says so.
    let dag = planned(
        "preserve_order = true\n- s = source\n- b = source\n- r = rebalance s\n- j = hash_join r,b\n- out = sink j",
    );
    let probe = edge(&dag, "s..j");
    assert!(probe.routing == Routing::Isolated && !probe.distributed);
    assert_eq!(notes(&dag, true).len(), 1);
}

#[test]
fn the_plan_says_where_order_ends() {
    let why = |sink: &str| {
        let dag = planned(&format!("preserve_order = true\n- s = source\n- out = sink s {sink}"));
        dag.edges[0].why.clone()
    };
    assert!(why("").ends_with("order ends here"));
    assert!(!why("parallelism=1").contains("order ends"));
}

#[test]
fn where_order_is_kept_parallelism_never_grows() {
    let plan = |up: &str, down: &str| {
        planned(&format!("preserve_order = true\n- s = source {up}\n- m = map s {down}\n- out = sink m"))
            .vertices[1]
            .parallelism
    };
    assert_eq!(plan("", ""), Parallelism::Default);
    assert_eq!(plan("parallelism=4", ""), Parallelism::DefaultUpTo(4));
    assert_eq!(plan("", "parallelism=4"), Parallelism::DefaultUpTo(4));
    assert_eq!(plan("parallelism=4", "parallelism=9"), Parallelism::PerAgent(4));
    assert_eq!(plan("distributed=false", "parallelism=9"), Parallelism::PerAgent(1));
}

#[test]
fn merging_rows_with_and_without_event_time_is_refused() {
    let error = refused(
        "- a = source kind='stream' timestamps='source'\n- b = source kind='stream'\n- m = merge a,b\n- out = sink m",
    );
    assert_eq!((error.kind, error.when), (Kind::MergeMixedTimestamps, When::ApiCall));
}

#[test]
fn a_stream_is_not_aggregated_sorted_or_joined_as_if_it_ended() {
    for stages in ["- x = aggregate s", "- x = sort s", "- b = source\n- x = hash_join b,s"] {
        let error = refused(&format!("- s = source kind='stream'\n{stages}\n- out = sink x"));
        assert_eq!((error.kind, error.when), (Kind::NotOfferedOnStream, When::ApiCall), "{stages}");
    }
}

#[test]
fn a_derived_name_in_use_names_both_stages() {
    let error = refused(
        "- s = source\n- m = map s name='aggregate-prepare' parallelism=2\n- a = aggregate m\n- out = sink a",
    );
    assert_eq!((error.kind, error.when), (Kind::NameInUse, When::Planning));
    assert!(["`m`", "`a`", "`aggregate-prepare`"].iter().all(|part| error.fault.message.contains(part)));
}

#[test]
fn inputs_must_come_first_and_exist() {
    let good = job("- src = source\n- m = map src\n- out = sink m");
    let mut wrong = good.clone();
    wrong.stages.swap(0, 1);
    let error = plan(&wrong).unwrap_err();
    assert_eq!(error.kind, Kind::Inputs);
    assert_eq!(error.fault.help.as_deref(), Some("move `src` before `m`"));
    let mut wrong = good.clone();
    wrong.stages[1].inputs[0].value = "scr".into();
    assert_eq!(plan(&wrong).unwrap_err().fault.help.as_deref(), Some("did you mean `src`?"));
    let mut wrong = good.clone();
    wrong.stages[1].id = "src".into();
    assert!(plan(&wrong).unwrap_err().fault.message.contains("two stages"));
    let mut wrong = good;
    wrong.stages[1].inputs[0].value = "m".into();
    assert!(plan(&wrong).unwrap_err().fault.message.contains("reads itself"));
}

const ROUTED: &str =
    "- s = source\n- a = map s\n- b = filter a\n- g = group_by b key='k'\n- c = aggregate g\n- out = sink c";

#[test]
fn a_route_finds_its_edge_by_any_of_its_names() {
    for name in ["s..a+b", "s..a", "s:0..b:0"] {
        let dag = planned(&format!("{ROUTED}\n[[route]]\nedge = '{name}'\npolicy = 'shuffle'"));
        assert_eq!(dag.edges[0].policy(), "shuffle", "{name}");
        assert_eq!(dag.edges.iter().filter(|e| e.policy() == "shuffle").count(), 1, "{name}");
    }
    let dag = planned(ROUTED);
    assert_eq!(dag.find_edge("s..fused(map, filter)"), dag.find_edge("s..a+b"));
    assert_eq!(dag.find_edge("g..c"), dag.find_edge("a+b..c/prepare"));
    assert_eq!(dag.find_edge("c..c").unwrap_err().message, "there is no edge `c..c`");
    let twice = "- s = source\n- r = rebalance s\n- out = sink s,r\n";
    let dag = planned(&format!("{twice}[[route]]\nedge = 's:1..out:1'\npolicy = 'shuffle'"));
    assert_eq!(
        dag.edges.iter().map(tuplane_core::plan::Edge::policy).collect::<Vec<_>>(),
        ["round-robin", "shuffle"]
    );
    let dag = planned(&format!("{twice}[[route]]\nedge = 'r..out'\npolicy = 'shuffle'"));
    assert_eq!(dag.edges[1].policy(), "shuffle");
    let error = refused(&format!("{twice}[[route]]\nedge = 's..out'\npolicy = 'shuffle'"));
    assert_eq!(error.fault.help.as_deref(), Some("one of s:0..out:0, s:1..out:1"));
}

#[test]
fn a_route_without_an_edge_or_a_choice_is_refused() {
    let with = |edge: &str| refused(&format!("{ROUTED}\n[[route]]\nedge = '{edge}'\npolicy = 'shuffle'"));
    let error = with("g..out");
    assert_eq!((error.kind, error.when), (Kind::Route, When::Planning));
    assert_eq!(error.fault.help.as_deref(), Some("did you mean `c..out`?"));
    assert!(error.fault.at.line > 0);
    assert!(with("b..c").fault.message.contains("key, `k`"));
    assert!(with("c/prepare..c").fault.message.contains("follows from its key"));
    let by = |end: &str| format!("\n[[route]]\nedge = 's..{end}'\npolicy = 'shuffle'");
    assert!(refused(&format!("{ROUTED}{}{}", by("a"), by("b"))).fault.message.contains("second route"));
    let error = refused(
        "- s = source\n- r = rebalance s policy='shuffle'\n- out = sink r\n[[route]]\nedge = 's..out'\npolicy = 'shuffle'",
    );
    assert!(error.fault.message.contains("from rebalance `r`"));
}

#[test]
fn a_policy_on_a_rebalance_needs_a_choice_too() {
    let dag = planned("- s = source\n- r = rebalance s policy='shuffle'\n- out = sink r");
    assert_eq!(dag.edges[0].policy(), "shuffle");
    assert!(dag.edges[0].distributed);
    // One stage, two edges: on the second the rows have nowhere else to go.
    let error =
        refused("- s = source\n- r = rebalance s policy='shuffle'\n- a = map_stateful r\n- out = sink a");
    assert!(error.fault.message.contains("s..a") && error.fault.message.contains("one instance"));
    let mut keyed = job("- s = source\n- r = rebalance s policy='shuffle'\n- out = sink r");
    let tuplane_core::job::Op::Rebalance(rebalance) = &mut keyed.stages[1].op else {
        panic!("not a rebalance")
    };
    rebalance.key = vec![tuplane_core::fault::Spanned::nowhere("k".into())];
    let error = plan(&keyed).unwrap_err();
    assert_eq!(error.kind, Kind::Route);
    assert!(error.fault.message.contains("has a key"));
}

#[test]
fn policies_that_are_not_there_are_named() {
    let dag = planned("- s = source\n- r = rebalance s policy='potus'\n- m = map r\n- out = sink m");
    assert_eq!(dag.edges[0].policy(), "potus");
    let faults = unsupported_policies(&dag, &["round-robin", "shuffle"]);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].message.contains("`potus`") && faults[0].message.contains("s..m"));
    assert!(unsupported_policies(&dag, &["round-robin", "potus"]).is_empty());
}

#[test]
fn edges_at_placed_instances_reach_all_agents() {
    let dag = planned(
        "- s = source\n- m = map s instances=5\n- g = group_by m key='k'\n- a = aggregate g parallelism=2\n- out = sink a",
    );
    assert_eq!(dag.vertices[1].parallelism, Parallelism::Total(5));
    for name in ["s..m", "m..a/prepare"] {
        assert!(edge(&dag, name).distributed, "{name}");
        assert!(edge(&dag, name).why.contains("`m` has `instances`"), "{name}");
    }
    assert!(!edge(&dag, "a..out").distributed);
    assert!(matches!(edge(&dag, "m..a/prepare").routing, Routing::Partitioned { .. }));
    assert_eq!(notes(&dag, false).len(), 2);
    assert_eq!(case_json(&dag)["vertices"][1], json!({ "name": "map", "total_parallelism": 5 }));
}

#[test]
fn instances_may_not_break_fixed_pairs() {
    let error = refused("preserve_order = true\n- s = source\n- m = map s instances=4\n- out = sink m");
    assert_eq!((error.kind, error.fault.stage.as_deref()), (Kind::Instances, Some("m")));
    let error = refused("- s = source instances=4\n- t = add_timestamps s\n- out = sink t");
    assert_eq!((error.kind, error.fault.stage.as_deref()), (Kind::Instances, Some("s")));
    // A source's own timestamps stay with it.
    let dag = planned("- s = source timestamps='source' instances=4\n- out = sink s");
    assert_eq!(
        (dag.vertices[1].role, dag.vertices[1].parallelism),
        (Role::Timestamps, Parallelism::Total(4))
    );
    assert_eq!(edge(&dag, "s..s/timestamps").routing, Routing::Isolated);
    assert!(edge(&dag, "s/timestamps..out").distributed);
}

#[test]
fn fixed_parallelism_says_what_it_ignores() {
    let dag = planned(
        "- s = source distributed=false parallelism=3\n- a = map_stateful s parallelism=4\n- out = sink a",
    );
    assert_eq!(dag.vertices[0].parallelism, Parallelism::OneProduces(3));
    assert_eq!(dag.vertices[1].parallelism, Parallelism::One);
    assert_eq!(notes(&dag, true).len(), 2);
}

#[test]
fn a_vertex_carries_keys_window_and_peeks() {
    let dag = planned(
        "- s = source kind='stream' timestamps='native'\n- p = peek s\n- g = group_by p key='k'\n\
         - w = window g type='tumbling' size='10s'\n- a = aggregate w\n- q = peek a\n- out = sink q",
    );
    assert_eq!(dag.vertices[0].peeks, ["p"]);
    let last = &dag.vertices[2];
    assert_eq!((last.name.as_str(), last.label().as_str()), ("sliding-window", "a"));
    assert_eq!(last.peeks, ["q"]);
    assert_eq!(dag.vertices[1].keys[0][0].value, "k");
    assert_eq!(dag.vertices[1].window, last.window);
    assert!(last.window.is_some());
}

#[test]
fn the_watermark_stride_serves_every_window_and_timer() {
    let stride = |stages: &str| {
        planned(&format!(
            "- s = source kind='stream' timestamps='native'\n- g = group_by s key='k'\n{stages}"
        ))
        .watermark_stride
    };
    let window =
        |options: &str| stride(&format!("- w = window g {options}\n- a = aggregate w\n- out = sink a"));
    assert_eq!(stride("- out = sink s"), 1000);
    assert_eq!(window("type='tumbling' size='300ms'"), 300);
    assert_eq!(window("type='tumbling' size='10s'"), 1000);
    assert_eq!(window("type='tumbling' size='1500ms'"), 500);
    assert_eq!(window("type='sliding' size='10s' slide='250ms'"), 250);
    assert_eq!(window("type='session' gap='3s'"), 30);
    // What is no whole number of milliseconds is given within the next one.
    assert_eq!(window("type='tumbling' size='500us'"), 1);
    assert_eq!(window("type='tumbling' size='2500us'"), 1);
    assert_eq!(window("type='sliding' size='10s' slide='1500us'"), 1);
    assert_eq!(window("type='session' gap='500us'"), 1);
    assert_eq!(window("type='session' gap='60s'"), 100);
    assert_eq!(stride("- a = map_stateful g ttl='5ms'\n- out = sink a"), 1);
    let both = "- w = window g type='tumbling' size='400ms'\n- a = aggregate w\n- o = sink a\n- b = map_stateful g ttl='6s'\n- out = sink b";
    assert_eq!(stride(both), 200);
}

#[test]
fn a_join_with_itself_says_that_rows_wait() {
    let dag = planned("- s = source\n- m = map s\n- j = hash_join m,s\n- out = sink j");
    assert!(notes(&dag, false)[0].starts_with("`s` feeds both sides of `j`"));
    assert!(edge(&dag, "m..j").spills && dag.edges.iter().filter(|edge| edge.spills).count() == 1);
    let dag = planned("- s = source\n- b = source\n- j = hash_join s,b\n- out = sink j");
    assert!(dag.notes.is_empty() && dag.edges.iter().all(|edge| !edge.spills));
}

#[test]
fn joins_that_wait_for_each_other_let_their_rows_spill() {
    let spilling = |text: &str| {
        let dag = planned(text);
        let ids = (0..dag.edges.len() as u32).map(EdgeId).filter(|id| dag.edge(*id).spills);
        let notes: Vec<String> = notes(&dag, false).into_iter().map(str::to_owned).collect();
        (ids.map(|id| dag.edge_name(id)).collect::<Vec<_>>(), notes)
    };
    let (edges, notes) =
        spilling("- a = source\n- b = source\n- j = hash_join a,b\n- k = hash_join b,a\n- out = sink j,k");
    assert_eq!(edges, ["a..j", "b..k"]);
    assert!(notes.len() == 2 && notes[0].starts_with("the build side of `j` waits for `k` and"), "{notes:?}");
    // Around three corners.
    let (edges, _) = spilling(
        "- a = source\n- b = source\n- c = source\n- j = hash_join a,b\n- k = hash_join b,c\n- l = hash_join c,a\n- out = sink j,k,l",
    );
    assert_eq!(edges, ["a..j", "b..k", "c..l"]);
    // One after the other nobody waits for itself.
    let (edges, _) = spilling(
        "- a = source\n- b = source\n- c = source\n- j = hash_join a,b\n- k = hash_join j,c\n- l = hash_join k,b\n- out = sink l",
    );
    assert_eq!(edges, Vec::<String>::new());
}

#[test]
fn renderings_show_vertices_edges_reasons_and_notes() {
    let dag = planned(
        "- s = source\n- r = rebalance s policy='shuffle'\n- m = map r parallelism=2\n- k = rebalance m key='x'\n- a = map_stateful k name='the\"state\"'\n- out = sink a",
    );
    let shown = plan_text("demo", &dag);
    for part in [
        "job demo",
        "2 on each agent",
        "s..m  unicast (shuffle), all agents",
        "m..a  all to one, all agents",
        "has no effect on m..a",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let drawn = dot("de\"mo", &dag);
    assert!(drawn.starts_with("digraph \"de\\\"mo\" {"), "{drawn}");
    assert!(
        drawn.contains("v0 -> v1 [") && drawn.contains("style=bold") && drawn.contains("the\\\"state\\\"")
    );
    let document = plan_json("demo", &dag);
    assert_eq!(document["schema"], "tuplane/plan/1");
    assert_eq!(document["edges"][0]["policy"], "shuffle");
    assert_eq!(document["edges"][0]["rebalance"]["stage"], "r");
    assert_eq!(document["edges"][1]["policy"], serde_json::Value::Null);
    assert_eq!(document["notes"][0]["no_effect"], true);
    assert_eq!(document["vertices"][1]["parallelism"], json!({ "per_agent": 2 }));
}

#[test]
fn a_rebalance_before_add_timestamps_is_noted_or_refused() {
    let job = |source: &str, key: &str| {
        format!("- s = source {source}\n- r = rebalance s {key}\n- t = add_timestamps r\n- out = sink t")
    };
    let dag = planned(&job("", "key='k'"));
    let notes = notes(&dag, false);
    assert!(notes.len() == 1 && notes[0].contains("put the rebalance behind `t`"), "{notes:?}");
    let why = &edge(&dag, "s..t").why;
    assert!(!why.contains("own order") && why.contains("rows go by `k`"), "{why}");
    // What one instance reads is in order wherever it goes.
    assert!(planned(&job("distributed=false", "key='k'")).notes.is_empty());
    let error = refused(&job("", ""));
    assert_eq!(error.kind, Kind::IsolatedRebalance);
    assert_eq!(error.fault.help.unwrap(), "put the rebalance behind `t`, or drop it");
}

#[test]
fn more_instances_than_partitions_are_refused_whatever_the_cluster() {
    let text = "partitions = 2\n- s = source\n- g = group_by s key='k'\n- a = aggregate g parallelism=3\n- out = sink a";
    let error = refused(text);
    assert!(error.fault.message.contains("3 instances by key, and there are 2 partitions"), "{error}");
    planned(&text.replace("parallelism=3", "parallelism=2"));
    assert!(plan(&job(&text.replace("parallelism", "instances"))).is_err());
}

#[test]
fn the_plan_says_windows_and_event_times() {
    let said = |stages: &str| {
        let text = format!(
            "- s = source kind='stream' time.column='at' time.lateness='5s'\n{stages}\n- a = aggregate w\n- out = sink a"
        );
        plan_text("j", &planned(&text))
    };
    let sliding = said("- w = window s type='sliding' size='10s' slide='2s'");
    assert!(sliding.contains(", event time `at`, lateness 5s\n"), "{sliding}");
    assert!(sliding.contains(", sliding windows of 10s, one each 2s\n"), "{sliding}");
    assert!(said("- w = window s type='tumbling' size='1m'").contains(", tumbling windows of 60s\n"));
    let session = said("- w = window s type='session' gap='3s' early_ms=500");
    assert!(session.contains(", sessions with a gap of 3s, early results each 500ms\n"), "{session}");
}
