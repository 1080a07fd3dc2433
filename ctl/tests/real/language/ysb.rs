//! The Yahoo Streaming Benchmark as it ships, on real events.

use crate::real::world::{World, assert_exact_ledger, shared, text, workspace};

#[test]
fn views_by_campaign_and_window_are_the_same_on_any_number_of_agents() {
    let test = "views_by_campaign_and_window";
    let Some(events) = shared(test, "data/json-ysb/ysb_6k_skew.jsonl") else { return };
    let Some(ads) = shared(test, "data/json-ysb/ad_to_campaign.csv") else { return };
    let world = World::new();
    let job = workspace().join("testbed/jobs/ysb.toml");
    let mut first: Option<Vec<String>> = None;
    for agents in ["1", "2", "3"] {
        let out = world.path(&format!("out-{agents}"));
        let sets = [
            format!("events.path={}", events.display()),
            format!("ads.path={}", ads.display()),
            format!("out.path={}", out.display()),
        ];
        let mut args = vec!["run", job.to_str().unwrap(), "--agents", agents, "-o", "json"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let output = world.tuplane(&args);
        assert!(output.status.success(), "{}", text(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["left_out"], 0, "{document}");
        assert_exact_ledger(&document);
        let mut rows: Vec<String> = Vec::new();
        for file in std::fs::read_dir(&out).unwrap() {
            let content = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(content.starts_with("campaign,window_start,window_end,views\n"), "{content}");
            rows.extend(content.lines().skip(1).map(str::to_owned));
        }
        rows.sort();
        let views = |row: &String| row.rsplit(',').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(rows.iter().map(views).sum::<u64>(), 2_005, "all views are in some window");
        assert_eq!(rows.len(), 102, "cells of campaign and window");
        assert_eq!(first.get_or_insert_with(|| rows.clone()), &rows, "{agents} agents");
    }
}
