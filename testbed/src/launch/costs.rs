//! The cost table: what a row costs between two zones, one line a pair.

use std::collections::BTreeSet;

use tuplane_core::route::Cost;

/// Cost of a row from one zone to another.
pub type CostEntry = (String, String, u32);

/// Reads `zone zone cost` lines; `#` starts a comment. A pair holds in both directions unless the
/// other direction has a line of its own. All faults are found in one pass, as `line N: ..`;
/// `zones` are the known ones.
pub fn parse_costs(text: &str, zones: &[String]) -> Result<Vec<CostEntry>, Vec<String>> {
    let mut entries: Vec<CostEntry> = Vec::new();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = content.split_whitespace().collect();
        match words[..] {
            [] => {}
            [from, to, cost] => {
                let mut good = true;
                for zone in [from, to] {
                    if !zones.iter().any(|known| known == zone) {
                        good = false;
                        let known = zones.join(", ");
                        faults.push(format!("line {number}: no agent is in zone `{zone}` (zones: {known})"));
                    }
                }
                let Some(cost) = cost.parse::<u32>().ok().filter(|cost| *cost <= Cost::MOST) else {
                    faults.push(format!(
                        "line {number}: the cost `{cost}` is not a whole number from 0 to {}",
                        Cost::MOST
                    ));
                    continue;
                };
                if !seen.insert((from.to_owned(), to.to_owned())) {
                    faults.push(format!("line {number}: the pair {from} {to} stands in an earlier line too"));
                    continue;
                }
                if good {
                    entries.push((from.to_owned(), to.to_owned(), cost));
                }
            }
            _ => faults
                .push(format!("line {number}: {} words where `zone zone cost` are expected", words.len())),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let reverse: Vec<CostEntry> = entries
        .iter()
        .filter(|(from, to, _)| !seen.contains(&(to.clone(), from.clone())))
        .map(|(from, to, cost)| (to.clone(), from.clone(), *cost))
        .collect();
    entries.extend(reverse);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones() -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    #[test]
    fn a_pair_holds_both_ways_unless_the_other_way_is_given() {
        let one = parse_costs("# costs\na b 5\n\na a 1 # own\n", &zones()).unwrap();
        assert_eq!(
            one,
            [("a".into(), "b".into(), 5), ("a".into(), "a".into(), 1), ("b".into(), "a".into(), 5)]
        );
        let both = parse_costs("a b 5\nb a 7\n", &zones()).unwrap();
        assert_eq!(both, [("a".into(), "b".into(), 5), ("b".into(), "a".into(), 7)]);
    }

    #[test]
    fn all_faults_in_one_pass_with_their_lines() {
        let faults = parse_costs("a c 1\na b -2\na b\na b 1\na b 2\n", &zones()).unwrap_err();
        let lines: Vec<&str> = faults.iter().map(|fault| &fault[..6]).collect();
        assert_eq!(lines, ["line 1", "line 2", "line 3", "line 5"]);
        assert!(faults[0].contains("zone `c`") && faults[0].contains("a, b"));
    }
}
