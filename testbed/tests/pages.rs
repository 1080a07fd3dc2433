//! The pages about own code show what the examples have.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_pages_excerpts_are_the_examples() {
    for (page, examples) in [
        ("own-policies.md", ["examples/policy/main.rs", "examples/policy/near.rs"]),
        ("own-planners.md", ["examples/planner/main.rs", "examples/planner/fullest.rs"]),
    ] {
        let text = read(&format!("../docs/{page}"));
        let examples: Vec<String> =
            examples.into_iter().chain(["../agent/examples/routing.rs"]).map(read).collect();
        let excerpts: Vec<&str> =
            text.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(excerpts.len() >= 3, "{page}: {}", excerpts.len());
        for excerpt in excerpts {
            assert!(
                examples.iter().any(|e| e.contains(excerpt)),
                "{page}: this is in no example:\n{excerpt}"
            );
        }
    }
}
