//! What a publication claims, what was measured, and whether it holds.

use std::fmt::Write as _;

use serde::Serialize;

use super::folder::FolderError;
use super::{Folder, Interval};

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Holds,
    /// It cannot be told from these runs.
    NotShown,
    /// It does not.
    DoesNotHold,
}

impl Verdict {
    /// Holds or not.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::DoesNotHold }
    }

    /// The same; what holds of fewer runs than it takes is not shown.
    pub fn of_enough(enough: bool, holds: bool) -> Self {
        if holds && !enough { Self::NotShown } else { Self::of(holds) }
    }

    /// Whether a mean lies below another: it does or it lies above if the intervals are apart, and cannot be told if
    /// they meet.
    pub fn below(this: &Interval, other: &Interval) -> Self {
        if this.is_below(other) {
            Self::Holds
        } else if other.is_below(this) {
            Self::DoesNotHold
        } else {
            Self::NotShown
        }
    }

    /// Whether a mean is from `least` to `most`: all of its interval is, none of it, or it cannot be told.
    pub fn within(this: &Interval, least: f64, most: f64) -> Self {
        if this.low() >= least && this.high() <= most {
            Self::Holds
        } else if this.high() < least || this.low() > most {
            Self::DoesNotHold
        } else {
            Self::NotShown
        }
    }

    /// Whether a mean is at most so much, as [`Verdict::within`].
    pub fn at_most(this: &Interval, most: f64) -> Self {
        Self::within(this, f64::NEG_INFINITY, most)
    }

    /// Whether all of these hold: not if one does not, and it cannot be told if it cannot of one.
    pub fn all(of: impl IntoIterator<Item = Self>) -> Self {
        of.into_iter().max().unwrap_or(Self::NotShown)
    }

    /// Whether one of these holds: not if none does.
    pub fn any(of: impl IntoIterator<Item = Self>) -> Self {
        of.into_iter().min().unwrap_or(Self::NotShown)
    }

    /// As the page has it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::NotShown => "not shown",
            Self::DoesNotHold => "does not hold",
        }
    }
}

/// A claim where it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Where: a network and arrivals, say.
    pub scene: String,
    /// Whether it holds there.
    pub verdict: Verdict,
    /// What was measured, with units.
    pub measured: String,
}

/// A published claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Its name in documents.
    pub id: String,
    /// What is claimed.
    pub claim: String,
    /// Where it is claimed.
    pub source: String,
    /// When it is taken to hold.
    pub test: String,
    /// Over all scenes: it holds if it holds in each, and does not if it does not in one.
    pub verdict: Verdict,
    /// By scene.
    pub parts: Vec<Part>,
    /// Why it does not hold or is not shown, where the reason is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Figures that show it: files beside the page.
    pub figures: Vec<String>,
}

impl Claim {
    /// Put together from its scenes; without any it is not shown.
    pub fn new(id: &str, claim: &str, source: &str, test: &str, parts: Vec<Part>) -> Self {
        let verdict = Verdict::all(parts.iter().map(|part| part.verdict));
        Self {
            id: id.to_owned(),
            claim: claim.to_owned(),
            source: source.to_owned(),
            test: test.to_owned(),
            verdict,
            parts,
            why: None,
            figures: Vec::new(),
        }
    }

    /// With a reason, which is kept unless the claim holds.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.why = (self.verdict != Verdict::Holds).then(|| why.to_owned());
        self
    }

    /// With the figures that show it.
    #[must_use]
    pub fn shown_by(mut self, figures: impl IntoIterator<Item = String>) -> Self {
        self.figures = figures.into_iter().collect();
        self
    }
}

/// All claims of an experiment: the document `tuplane/claims/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claims {
    schema: &'static str,
    /// The experiment.
    pub name: String,
    /// The folder of its results.
    pub folder: String,
    /// How it was run, and what has to be known of it: a sentence each.
    pub notes: Vec<String>,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Claims {
    /// Of an experiment whose results are in a folder.
    pub fn new(name: &str, folder: String, notes: Vec<String>, claims: Vec<Claim>) -> Self {
        Self { schema: "tuplane/claims/1", name: name.to_owned(), folder, notes, claims }
    }

    /// Writes the page and the document into the folder of results.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&self, folder: &Folder) -> Result<(), FolderError> {
        let unfit = |cause: serde_json::Error| FolderError::Unfit {
            path: folder.path().to_owned(),
            why: cause.to_string(),
        };
        let document = serde_json::to_string_pretty(self).map_err(unfit)?;
        folder.write("claims.md", self.page().as_bytes())?;
        folder.write("claims.json", format!("{document}\n").as_bytes())?;
        Ok(())
    }

    /// The page `claims.md`.
    pub fn page(&self) -> String {
        let mut page = format!("# {}: published claims, and what was measured\n\n", self.name);
        self.notes.iter().for_each(|note| page.push_str(&format!("- {note}\n")));
        page.push_str("\n| claim | verdict | where |\n| --- | --- | --- |\n");
        for claim in &self.claims {
            let _ = writeln!(
                page,
                "| [{}](#{}): {} | **{}** | {} |",
                claim.id,
                claim.id,
                cell(&claim.claim),
                claim.verdict.words(),
                claim.tally()
            );
        }
        for claim in &self.claims {
            let _ = write!(
                page,
                "\n## {}\n\n{} ({}).\n\nTaken to hold if {}. It **{}**.",
                claim.id,
                claim.claim,
                claim.source,
                claim.test,
                match claim.verdict {
                    Verdict::NotShown => "is not shown",
                    verdict => verdict.words(),
                }
            );
            if let Some(why) = &claim.why {
                let _ = write!(page, " {why}");
            }
            page.push_str("\n\n");
            if !claim.parts.is_empty() {
                page.push_str("| where | verdict | measured |\n| --- | --- | --- |\n");
            }
            for Part { scene, verdict, measured } in &claim.parts {
                let _ = writeln!(page, "| {} | {} | {} |", cell(scene), verdict.words(), cell(measured));
            }
            for figure in &claim.figures {
                let _ = write!(page, "\n![{figure}]({figure})\n");
            }
        }
        page
    }

    /// The claims as a table on a terminal.
    pub fn table(&self) -> String {
        let width = self.claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0).max("CLAIM".len());
        let mut table = format!("{:<width$}  {:<13}  WHERE\n", "CLAIM", "VERDICT");
        for claim in &self.claims {
            let _ = writeln!(table, "{:<width$}  {:<13}  {}", claim.id, claim.verdict.words(), claim.tally());
        }
        table
    }
}

impl Claim {
    /// In how many scenes it holds, and in which it does not.
    fn tally(&self) -> String {
        let scenes = |verdict: Verdict| {
            let parts = self.parts.iter().filter(move |part| part.verdict == verdict);
            parts.map(|part| part.scene.as_str()).collect::<Vec<_>>()
        };
        let holds = scenes(Verdict::Holds).len();
        let mut tally = format!("{holds} of {}", self.parts.len());
        if holds > 0 {
            for (words, verdict) in [("not", Verdict::DoesNotHold), ("not shown", Verdict::NotShown)] {
                let scenes = scenes(verdict);
                if !scenes.is_empty() {
                    tally.push_str(&format!(", {words}: {}", scenes.join("; ")));
                }
            }
        }
        tally
    }
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(scene: &str, verdict: Verdict) -> Part {
        Part { scene: scene.to_owned(), verdict, measured: format!("3 | {}", verdict.words()) }
    }

    #[test]
    fn intervals_that_meet_tell_nothing() {
        let of = |mean: f64| Interval { mean, half: Some(1.0), count: 5 };
        let below = |this, other| Verdict::below(&of(this), &of(other));
        assert_eq!(
            [below(1.0, 3.5), below(3.5, 1.0), below(1.0, 2.9), below(2.9, 1.0)],
            [Verdict::Holds, Verdict::DoesNotHold, Verdict::NotShown, Verdict::NotShown]
        );
        let within = |mean| Verdict::within(&of(mean), 0.0, 4.0);
        assert_eq!(
            [within(2.0), within(3.5), within(0.5), within(5.5), within(-2.0)],
            [
                Verdict::Holds,
                Verdict::NotShown,
                Verdict::NotShown,
                Verdict::DoesNotHold,
                Verdict::DoesNotHold
            ]
        );
        assert_eq!(Verdict::at_most(&of(-9.0), 4.0), Verdict::Holds);
        let some = [Verdict::Holds, Verdict::NotShown];
        assert_eq!((Verdict::all(some), Verdict::any(some)), (Verdict::NotShown, Verdict::Holds));
        assert_eq!((Verdict::all([]), Verdict::any([])), (Verdict::NotShown, Verdict::NotShown));
    }

    #[test]
    fn a_claim_holds_where_it_holds_everywhere() {
        let verdict = |parts| Claim::new("c", "it falls", "section 1", "it falls", parts).verdict;
        assert_eq!(verdict(vec![]), Verdict::NotShown);
        assert_eq!(verdict(vec![part("a", Verdict::Holds), part("b", Verdict::Holds)]), Verdict::Holds);
        assert_eq!(verdict(vec![part("a", Verdict::Holds), part("b", Verdict::NotShown)]), Verdict::NotShown);
        let one = vec![part("a", Verdict::DoesNotHold), part("b", Verdict::NotShown)];
        assert_eq!(verdict(one), Verdict::DoesNotHold);
    }

    #[test]
    fn the_page_has_each_claim_with_what_was_measured() {
        let parts = vec![part("tree", Verdict::Holds), part("ring", Verdict::DoesNotHold)];
        let falls = Claim::new("falls", "Cost falls", "section 3", "it falls", parts)
            .because("The ring has one way.")
            .shown_by(["cost.svg".to_owned()]);
        let held = Claim::new("held", "It holds", "section 4", "it does", vec![part("tree", Verdict::Holds)])
            .because("Not kept.");
        let claims =
            Claims::new("trial", "results/trial".to_owned(), vec!["5 seeds.".to_owned()], vec![falls, held]);
        assert_eq!(
            claims.page(),
            "# trial: published claims, and what was measured\n\n- 5 seeds.\n\n| claim | verdict | where |\n\
             | --- | --- | --- |\n| [falls](#falls): Cost falls | **does not hold** | 1 of 2, not: ring |\n\
             | [held](#held): It holds | **holds** | 1 of 1 |\n\n\
             ## falls\n\nCost falls (section 3).\n\nTaken to hold if it falls. It **does not hold**. The ring has one way.\n\n\
             | where | verdict | measured |\n| --- | --- | --- |\n| tree | holds | 3 \\| holds |\n\
             | ring | does not hold | 3 \\| does not hold |\n\n![cost.svg](cost.svg)\n\n\
             ## held\n\nIt holds (section 4).\n\nTaken to hold if it does. It **holds**.\n\n\
             | where | verdict | measured |\n| --- | --- | --- |\n| tree | holds | 3 \\| holds |\n"
        );
        assert!(
            claims
                .table()
                .starts_with("CLAIM  VERDICT        WHERE\nfalls  does not hold  1 of 2, not: ring\n")
        );
        let document = serde_json::to_value(&claims).unwrap();
        assert_eq!(document["schema"], "tuplane/claims/1");
        assert_eq!(document["claims"][0]["verdict"], "does_not_hold");
        assert_eq!(document["claims"][1].get("why"), None);
    }
}
