//! Where a row entered, in words: the coordinator has the splits of shared files, agents those of their own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tuplane_core::cluster::Job;
use tuplane_core::job;
use tuplane_core::place::{self, RowPlace};
use tuplane_wire::message::{AgentId, AgentReply, AgentRequest, InstanceReport, Split};

use super::links::Links;
use crate::source;

/// A job that has failed is not kept waiting longer for the place of its row.
pub(super) const FOR_A_FAULT: Duration = Duration::from_secs(10);

/// Nor is a person who asks for the state of a job; lines that were counted once need no time.
pub(super) const FOR_A_NOTE: Duration = Duration::from_secs(2);

/// Counted splits that are remembered.
const MOST_COUNTS: usize = 4096;

/// A run, and the file and start of one of its splits.
type Counted = (u64, String, u64);

/// Lines before splits, as far as they were counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(Arc<Mutex<HashMap<Counted, u64>>>);

impl Counts {
    fn before(&self, run: u64, split: &Split) -> Option<u64> {
        let key = (run, split.path.clone(), split.start);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if known.is_some() {
            return known;
        }
        // The paths of shared files are whole.
        let lines = source::lines_before(split, Path::new(""))?;
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MOST_COUNTS {
            counts.clear();
        }
        counts.insert(key, lines);
        Some(lines)
    }
}

/// A row whose place is wanted in words.
#[derive(Debug)]
pub(super) struct Lookup {
    run: u64,
    place: RowPlace,
    stage: String,
    knows: Knows,
}

/// Who knows the row's split.
#[derive(Debug)]
enum Knows {
    We(Split),
    Agent(AgentId),
    Nobody,
}

impl Lookup {
    /// What the state says about the place of a row.
    pub(super) fn new(job: &Job, place: RowPlace) -> Self {
        let parsed: Option<job::Job> = serde_json::from_str(&job.job).ok();
        let stage = parsed.as_ref().and_then(|parsed| place::source_stage(parsed, place.source()));
        let own = stage.is_some_and(|stage| match &stage.op {
            job::Op::Source(source) => match &source.connector {
                Some(job::SourceConnector::File(file)) => file.files == job::Files::Each,
                _ => false,
            },
            _ => false,
        });
        let stage = stage.map_or_else(String::new, |stage| stage.id.clone());
        let knows = if own {
            let (agent, _) = place::owner(place.split(), job.first_agents);
            job.agents.get(usize::from(agent)).map(|agent| Knows::Agent(agent.id.clone()))
        } else {
            job.split(&stage, place.split()).cloned().map(Knows::We)
        };
        Self { run: job.run, place, stage, knows: knows.unwrap_or(Knows::Nobody) }
    }

    /// The file and the line; less than that if they are not found within this time.
    pub(super) async fn words(self, links: &Links, counts: &Counts, within: Duration) -> String {
        let in_short = match &self.knows {
            Knows::We(split) => place::words(split, self.place.line(), |_| None),
            Knows::Agent(_) | Knows::Nobody => place::words_without_file(&self.stage, self.place),
        };
        let found = tokio::time::timeout(within, self.found(links, counts, within)).await;
        found.ok().flatten().unwrap_or(in_short)
    }

    async fn found(self, links: &Links, counts: &Counts, within: Duration) -> Option<String> {
        let (run, place) = (self.run, self.place);
        match self.knows {
            Knows::We(split) => {
                let counts = counts.clone();
                // Files are read, if lines have to be counted.
                let words = tokio::task::spawn_blocking(move || {
                    place::words(&split, place.line(), |split| counts.before(run, split))
                });
                words.await.ok()
            }
            Knows::Agent(id) => match links.call(&id, AgentRequest::Locate { run, place }, within).await {
                Ok(AgentReply::Located(words)) => Some(words),
                Ok(other) => {
                    tracing::warn!(run, agent = %id.name, ?other, "a place was answered by something else");
                    None
                }
                Err(fault) => {
                    tracing::info!(run, agent = %id.name, %fault, "a row's place is not known");
                    None
                }
            },
            Knows::Nobody => None,
        }
    }
}

/// The notes of instances whose rows' places are not in words yet, by their index.
pub(super) fn unlocated(job: &Job, reports: &[InstanceReport]) -> Vec<(usize, Lookup)> {
    let numbered = reports.iter().enumerate();
    numbered.filter_map(|(index, report)| Some((index, Lookup::new(job, report.note_place?)))).collect()
}

/// Puts the places of notes into words.
pub(super) async fn locate_notes(
    reports: &mut [InstanceReport],
    lookups: Vec<(usize, Lookup)>,
    links: &Links,
    counts: &Counts,
) {
    let found = lookups
        .into_iter()
        .map(async |(index, lookup)| (index, lookup.words(links, counts, FOR_A_NOTE).await));
    for (index, words) in join_all(found).await {
        let Some(report) = reports.get_mut(index) else { continue };
        report.note = report.note.take().map(|note| place::sentence(&note, &words));
        report.note_place = None;
    }
}
