//! `paper stela --gaps`: how long nothing comes out when a loaded job is rescaled, without state and with much of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::live::gaps::{Gap, Gaps, Subject, gaps as measure};
use super::{StelaError, has_command};
use crate::experiment::{
    Claim, Claims, Columns, Folder, Manifest, Part, Record, State, Stop, Table, Verdict,
};

/// The experiment's name.
const NAME: &str = "paper-stela-gaps";

/// Its table.
const TABLE: &str = "gaps.csv";

/// So many rescales say whether the claim holds.
const ENOUGH: usize = 20;

/// What a rescale may add to the usual gaps, in ms: the median, and the worst; without state, and with keyed state.
const MAY_ADD: [(f64, f64); 2] = [(50.0, 100.0), (100.0, 250.0)];

/// Bytes of a megabyte.
const MB: f64 = 1e6;

/// A job that is rescaled: one that keeps nothing, or one that keeps so much by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case(Subject);

impl Case {
    /// One that keeps so many bytes by key; 0: one without state.
    pub fn new(state: u64) -> Self {
        Self(if state == 0 { Subject::stateless() } else { Subject::keyed(state) })
    }

    /// Those that are told of together: without state, and with 100 MB.
    pub fn both() -> Vec<Self> {
        [0, 100_000_000].map(Self::new).into()
    }

    /// In tables.
    fn name(self) -> String {
        match self.0.state() {
            0 => "stateless".to_owned(),
            state => format!("{} MB", state as f64 / MB),
        }
    }

    fn may_add(self) -> (f64, f64) {
        MAY_ADD[usize::from(self.0.state() > 0)]
    }
}

/// About how long so many rescales of each of these take.
pub fn gaps_time(cases: &[Case], rescales: u32) -> Duration {
    cases.iter().map(|case| case.0.time(rescales)).sum()
}

/// Rescales loaded jobs again and again, one after the other, and writes how long nothing came out: a table and the page
/// of claims. `progress` gets how many rescales of all were done.
///
/// # Errors
/// If it cannot be run, or a file cannot be written.
pub fn gaps(
    cases: &[Case],
    rescales: u32,
    out: &Path,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<(PathBuf, Claims), StelaError> {
    has_command()?;
    let all = rescales as usize * cases.len();
    let state: Vec<u64> = cases.iter().map(|case| case.0.state()).collect();
    let options = serde_json::json!({ "rescales": rescales, "state": state });
    let mut folder = Folder::make(out, Manifest::new(NAME, options, Vec::new(), all))?;
    let mut measured = Vec::new();
    let mut failed = None;
    for case in cases {
        let before = measured.len() * rescales as usize;
        match measure(case.0, rescales, stop, |done| progress(before + done)) {
            Ok(gaps) => measured.push((*case, gaps)),
            Err(why) => {
                failed =
                    Some(StelaError::Run { run: format!("gaps, {}", case.name()), why: format!("{why:#}") });
                break;
            }
        }
        if stop.is_set() {
            break;
        }
    }
    let done = measured.iter().map(|(_, gaps)| gaps.gaps.len()).sum();
    let claims = match failed {
        // What was measured before it is kept.
        Some(failed) => write(&folder, &measured).and(Err(failed)),
        None => write(&folder, &measured),
    };
    match &claims {
        Ok(_) if done == all => folder.mark(State::Complete, None, done)?,
        Ok(_) => folder.mark(State::Incomplete, Some("interrupted".to_owned()), done)?,
        Err(error) => folder.mark(State::Incomplete, Some(error.to_string()), done)?,
    }
    Ok((folder.path().to_owned(), claims?))
}

/// What a rescale added to the usual gaps, in ms.
fn added(gap: &Gap) -> f64 {
    (gap.longest - gap.usual).max(0.0)
}

fn write(folder: &Folder, measured: &[(Case, Gaps)]) -> Result<Claims, StelaError> {
    let columns = Columns {
        factors: vec!["state", "rescale"],
        metrics: vec!["longest_ms", "usual_ms", "added_ms", "operation_ms", "held_mb"],
    };
    let records = measured.iter().flat_map(|(case, gaps)| {
        let held = gaps.kept.map(|kept| kept.bytes as f64 / MB);
        (1..).zip(&gaps.gaps).map(move |(number, gap): (u32, _)| {
            let times = [gap.longest, gap.usual, added(gap), gap.operation].map(Some);
            Record {
                factors: vec![case.name(), number.to_string()],
                metrics: times.into_iter().chain([held]).collect(),
            }
        })
    });
    let mut table = Vec::new();
    Table::new(columns, records.collect()).write(&mut table)?;
    folder.write(TABLE, &table)?;
    let claim = Claim::new(
        "gaps",
        "A live rescale of a job that is loaded to 80 % adds little to the gaps between rows",
        "ours",
        "the longest gap within 2 s after a rescale, less the 99.9th percentile of the gaps in the 20 s before, is less than \
         50 ms in the median of at least 20 and 100 ms at worst, with keyed state 100 and 250 ms; and no row is lost, comes twice, or has \
         another count than its place among the rows of its key",
        measured.iter().filter_map(|(case, gaps)| part(*case, gaps)).collect(),
    );
    let mut said = vec![
        "A stage of four instances (2 ms a row, slept) gets 1,600 rows/s, and a stage is scaled from four instances to five \
         and back in turn, every 22 s: that stage itself where it is stateless, else the one before it, which counts rows by \
         key and keeps the least and the greatest number of each. Sinks stamp rows by a monotonic clock, read to 1 ms."
            .to_owned(),
    ];
    said.extend(measured.iter().filter_map(|(case, gaps)| {
        let kept = gaps.kept?;
        Some(format!(
            "{}: {} keys came before the first rescale, and took {:.0} MB then, as agents say it.",
            case.name(),
            kept.keys,
            kept.bytes as f64 / MB
        ))
    }));
    let claims = Claims::new(NAME, folder.path().display().to_string(), said, vec![claim]);
    claims.write(folder)?;
    Ok(claims)
}

/// What was measured of a case; `None` if it was not rescaled.
fn part(case: Case, gaps: &Gaps) -> Option<Part> {
    let mut all: Vec<f64> = gaps.gaps.iter().map(added).collect();
    all.sort_by(f64::total_cmp);
    let (upper, worst) = (all.get(all.len() / 2)?, *all.last()?);
    let median = f64::midpoint(all[(all.len() - 1) / 2], *upper);
    let (rows, kept, may_add) = (&gaps.rows, gaps.kept, case.may_add());
    let whole = rows.lost == 0 && rows.duplicated == 0 && kept.is_none_or(|kept| kept.miscounted == 0);
    let verdict = match kept {
        // The state was not there.
        Some(kept) if kept.bytes < kept.asked && whole => Verdict::NotShown,
        _ => Verdict::of_enough(all.len() >= ENOUGH, median < may_add.0 && worst < may_add.1 && whole),
    };
    let mut measured = format!(
        "of {} rescales the median is {median:.0} ms and the worst {worst:.0} ms, at {:.0} rows/s; of {} rows {} lost, {} twice",
        all.len(),
        gaps.rate,
        rows.expected,
        rows.lost,
        rows.duplicated
    );
    if let Some(kept) = kept {
        let (bytes, miscounted) = (kept.bytes as f64 / MB, kept.miscounted);
        measured.push_str(&format!(", {miscounted} with another count; {bytes:.0} MB of state"));
    }
    let scene = if kept.is_some() { format!("{} of keyed state", case.name()) } else { case.name() };
    Some(Part { scene: format!("{scene}, 80 % load"), verdict, measured })
}

#[cfg(test)]
mod tests {
    use super::super::live::gaps::Kept;
    use super::super::measure::Tally;
    use super::*;

    fn measured(longest: &[f64], kept: Option<Kept>) -> Gaps {
        let gap = |longest: &f64| Gap { longest: *longest, usual: 10.0, operation: 40.0 };
        let rows = Tally { expected: 900, lost: 0, duplicated: 0 };
        Gaps { gaps: longest.iter().cycle().take(ENOUGH).map(gap).collect(), rows, rate: 1600.0, kept }
    }

    fn verdict(of: &[(Case, Gaps)]) -> Verdict {
        let out = tempfile::tempdir().unwrap();
        let folder =
            Folder::make(out.path(), Manifest::new(NAME, serde_json::json!({}), Vec::new(), 0)).unwrap();
        let claims = write(&folder, of).unwrap();
        let table = std::fs::read_to_string(folder.path().join(TABLE)).unwrap();
        let rescales: usize = of.iter().map(|(_, gaps)| gaps.gaps.len()).sum();
        assert_eq!(table.lines().count(), rescales + 1);
        claims.claims[0].verdict
    }

    #[test]
    fn gaps_are_held_against_what_a_rescale_may_add() {
        let stateless = |longest: &[f64]| (Case::new(0), measured(longest, None));
        assert_eq!(verdict(&[stateless(&[5.0, 50.0, 109.0])]), Verdict::Holds);
        assert_eq!(verdict(&[stateless(&[5.0, 50.0, 111.0])]), Verdict::DoesNotHold, "one is too long");
        assert_eq!(
            verdict(&[stateless(&[5.0, 59.0, 63.0, 80.0])]),
            Verdict::DoesNotHold,
            "the median is 51 ms"
        );
        assert_eq!(verdict(&[stateless(&[])]), Verdict::NotShown);
        let mut few = stateless(&[5.0]);
        few.1.gaps.pop();
        assert_eq!(verdict(&[few]), Verdict::NotShown);
        let mut lost = stateless(&[5.0]);
        lost.1.rows.lost = 1;
        assert_eq!(verdict(&[lost]), Verdict::DoesNotHold);
    }

    #[test]
    fn with_keyed_state_more_may_be_added_and_the_state_must_be_there() {
        let kept = Kept { asked: 100_000_000, bytes: 104_000_000, keys: 7, miscounted: 0 };
        let keyed = |longest: &[f64], kept| (Case::new(100_000_000), measured(longest, Some(kept)));
        let stateless = (Case::new(0), measured(&[12.0], None));
        assert_eq!(verdict(&[stateless.clone(), keyed(&[50.0, 109.0, 259.0], kept)]), Verdict::Holds);
        assert_eq!(verdict(&[stateless, keyed(&[50.0, 109.0, 260.0], kept)]), Verdict::DoesNotHold);
        let little = Kept { bytes: 99_000_000, ..kept };
        assert_eq!(verdict(&[keyed(&[12.0], little)]), Verdict::NotShown);
        let miscounted = Kept { miscounted: 1, ..kept };
        assert_eq!(verdict(&[keyed(&[12.0], miscounted)]), Verdict::DoesNotHold);
    }

    #[test]
    fn how_long_it_takes_is_known_beforehand() {
        let minutes = gaps_time(&Case::both(), 20).as_secs_f64() / 60.0;
        assert!((14.0..18.0).contains(&minutes), "{minutes}");
    }
}
