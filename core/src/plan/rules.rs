//! What one stage may do with its inputs, and the name it has of itself.

use super::error::{Kind, PlanError};
use super::graph::{Transform, View};
use crate::job::{Op, SinkKind, SourceKind, Stage, StatefulShape, Text, Timestamps, Window, WindowKind};

pub(super) fn timestamps_parallelism(stage: &Stage) -> PlanError {
    PlanError::at_stage(
        Kind::TimestampsParallelism,
        stage,
        format!("`{}` cannot set the parallelism of add_timestamps: it has its input's", stage.id),
    )
    .help("set it on the stage before, or after")
}

pub(super) fn no_vertex(stage: &Stage) -> Result<(), PlanError> {
    if stage.parallelism.or(stage.instances).is_none() {
        return Ok(());
    }
    let message =
        format!("{} `{}` runs nowhere by itself, so it has no parallelism", stage.op.name(), stage.id);
    Err(PlanError::at_stage(Kind::Option, stage, message).help("set it on the stage that reads it"))
}

pub(super) fn refuse_grouped(stage: &Stage, view: &View<'_>) -> Result<(), PlanError> {
    if view.group.is_none() {
        return Ok(());
    }
    let op = stage.op.name();
    let message =
        format!("{op} `{}` reads a stage that has a grouping key, which {op} does not take", stage.id);
    Err(PlanError::at_stage(Kind::NotOfferedOnGrouped, stage, message)
        .help(format!("put {op} before the group_by, or read the stage before it")))
}

pub(super) fn refuse_windowed(stage: &Stage, view: &View<'_>) -> Result<(), PlanError> {
    if view.window.is_none() {
        return Ok(());
    }
    let op = stage.op.name();
    let message = format!("{op} `{}` reads a windowed stage, which only aggregates may do", stage.id);
    Err(PlanError::at_stage(Kind::NotOfferedOnWindowed, stage, message)
        .help(format!("put {op} before the window, or read the stage before it")))
}

/// Counts that need no other stage: inputs, parallelism, a partitioned sink's key.
pub(super) fn check_counts(stage: &Stage) -> Result<(), PlanError> {
    let (least, most) = match stage.op {
        Op::Source(_) => (0, 0),
        Op::Merge | Op::CoAggregate { .. } | Op::HashJoin { .. } => (2, usize::MAX),
        Op::Sink(_) => (1, usize::MAX),
        _ => (1, 1),
    };
    let (n, op, id) = (stage.inputs.len(), stage.op.name(), &stage.id);
    if n < least || n > most {
        let needs = match (least, most) {
            (0, _) => "no input".to_owned(),
            (1, 1) => "one input".to_owned(),
            (least, _) => format!("at least {least} input{}", if least == 1 { "" } else { "s" }),
        };
        let message = format!("{op} `{id}` takes {needs}, and has {n}");
        return Err(PlanError::at_stage(Kind::Inputs, stage, message));
    }
    if stage.parallelism == Some(0) || stage.instances == Some(0) {
        let message = format!("`{id}` asks for no instance at all");
        return Err(PlanError::at_stage(Kind::Option, stage, message).help("give at least 1"));
    }
    if stage.parallelism.is_some() && stage.instances.is_some() {
        let message = format!("`{id}` sets both `parallelism` (on every agent) and `instances` (in all)");
        return Err(PlanError::at_stage(Kind::Option, stage, message).help("keep one of them"));
    }
    if let (Op::AddTimestamps { .. }, Some(_)) = (&stage.op, stage.parallelism.or(stage.instances)) {
        return Err(timestamps_parallelism(stage));
    }
    if let Op::Sink(sink) = &stage.op {
        let by_key = matches!(sink.kind, SinkKind::Partitioned | SinkKind::DistributedPartitioned);
        if by_key && sink.key.is_empty() {
            let message = format!("sink `{id}` is partitioned, so it needs a `key`");
            return Err(PlanError::at_stage(Kind::Option, stage, message));
        }
    }
    Ok(())
}

/// Whether rows never end and whether they carry event time, and what those two forbid.
pub(super) fn flow(
    stage: &Stage,
    ups: &[&Transform<'_>],
    views: &[View<'_>],
    window: Option<&Window>,
) -> Result<(bool, bool), PlanError> {
    let id = &stage.id;
    let err = |kind, message: String| PlanError::at_stage(kind, stage, message);
    let stream = ups.iter().any(|t| t.stream);
    let timestamped = ups.first().is_some_and(|t| t.timestamped);
    match &stage.op {
        Op::Source(source) => {
            let timestamped = source.timestamps != Timestamps::None || source.time.is_some();
            return Ok((source.kind == SourceKind::Stream, timestamped));
        }
        Op::Peek { .. } => {
            if let Some(flag) = views[0].flag {
                let message = format!(
                    "peek `{id}` stands directly on rebalance `{}`, which has no rows of its own",
                    flag.stage.id
                );
                return Err(err(Kind::PeekOnRebalanced, message)
                    .help("peek before the rebalance, or after the next stage"));
            }
        }
        Op::AddTimestamps { .. } => {
            if timestamped {
                let message = format!("`{id}` adds timestamps to rows that have them");
                return Err(err(Kind::TimestampsTwice, message).help("drop one of the two"));
            }
            return Ok((stream, true));
        }
        Op::Merge if ups.iter().any(|t| t.timestamped != timestamped) => {
            let message = format!("merge `{id}` has inputs with event time and inputs without");
            return Err(err(Kind::MergeMixedTimestamps, message)
                .help("give all of them timestamps before the merge, or none"));
        }
        Op::Aggregate { .. } | Op::CoAggregate { .. } => {
            check_groups(stage, views)?;
            check_windows(stage, views)?;
            if window.is_some() {
                if let Some(t) = ups.iter().find(|t| !t.timestamped) {
                    let message = format!(
                        "`{id}` aggregates by window, but rows of `{}` have no event time",
                        t.stage.id
                    );
                    return Err(err(Kind::WindowWithoutTimestamps, message)
                        .help("set `time` on the source, or put add_timestamps before the window"));
                }
            } else if stream {
                let message =
                    format!("`{id}` aggregates a stream without a window: it would never give a result");
                return Err(err(Kind::NotOfferedOnStream, message)
                    .help("put a window before it, or use rolling_aggregate"));
            }
            return Ok((stream, window.is_some()));
        }
        Op::Sort { .. } if stream => {
            let message = format!("`{id}` sorts a stream, which has no end: it would never give a result");
            return Err(err(Kind::NotOfferedOnStream, message));
        }
        Op::HashJoin { .. } => {
            if let Some((_, input)) = ups.iter().zip(&stage.inputs).skip(1).find(|(t, _)| t.stream) {
                let message = format!(
                    "`{id}` joins with the stream `{}`, which never ends: only its first input may be a stream",
                    input.value
                );
                return Err(err(Kind::NotOfferedOnStream, message));
            }
            return Ok((ups[0].stream, timestamped));
        }
        Op::Distinct { key } if !key.is_empty() && views[0].group.is_some() => {
            let message = format!("distinct `{id}` has a `key` and reads a group_by: give the key once");
            return Err(err(Kind::Option, message));
        }
        _ => {}
    }
    Ok((stream, timestamped))
}

fn check_groups(stage: &Stage, views: &[View<'_>]) -> Result<(), PlanError> {
    let first = views[0].group.map(<[Text]>::len);
    for (view, input) in views.iter().zip(&stage.inputs).skip(1) {
        let this = view.group.map(<[Text]>::len);
        if this == first {
            continue;
        }
        let message = match (first, this) {
            (Some(a), Some(b)) => {
                format!("inputs of `{}` have keys of different length: {a} and {b} expressions", stage.id)
            }
            _ => format!("some inputs of `{}` have a grouping key and some have none", stage.id),
        };
        return Err(PlanError::at(Kind::Inputs, input.at, message)
            .help("put a group_by before each input, or before none"));
    }
    Ok(())
}

fn check_windows(stage: &Stage, views: &[View<'_>]) -> Result<(), PlanError> {
    let mut windows = views.iter().filter_map(|v| v.window);
    let first = windows.next();
    if windows.any(|w| Some(w) != first) {
        let message = format!("inputs of `{}` have different windows", stage.id);
        return Err(PlanError::at_stage(Kind::Inputs, stage, message).help("one window for all inputs"));
    }
    Ok(())
}

/// Jet's name of a stage that says none.
pub(super) fn own_name(stage: &Stage, inputs: usize, keyed: bool, window: Option<&Window>) -> String {
    match (&stage.op, window) {
        (Op::Source(_) | Op::Sink(_), _) => stage.id.clone(),
        (Op::FlatMap { .. }, _) => "flat-map".to_owned(),
        (Op::Aggregate { .. } | Op::CoAggregate { .. }, Some(window)) => match window.kind {
            WindowKind::Session => "session-window".to_owned(),
            WindowKind::Tumbling | WindowKind::Sliding => "sliding-window".to_owned(),
        },
        (Op::Aggregate { .. }, None) => if keyed { "group-and-aggregate" } else { "aggregate" }.to_owned(),
        (Op::CoAggregate { .. }, None) => {
            format!("{inputs}-way {}", if keyed { "cogroup-and-aggregate" } else { "co-aggregate" })
        }
        (Op::HashJoin { .. }, _) => format!("{inputs}-way hash-join"),
        (Op::Stateful { .. } | Op::RollingAggregate { .. }, _) => {
            let flat = matches!(stage.op, Op::Stateful { shape: StatefulShape::FlatMap, .. });
            let shape = if flat { "flatmap" } else { "map" };
            format!("{shape}-stateful-{}", if keyed { "keyed" } else { "global" })
        }
        (Op::UsingService(service), _) => {
            let shape = match service.shape {
                StatefulShape::Map => "map",
                StatefulShape::Filter => "filter",
                StatefulShape::FlatMap => "flatMap",
            };
            let partitioned = if keyed { "Partitioned" } else { "" };
            let asynchronous = if service.asynchronous { "Async" } else { "" };
            let batched = if service.batched { "Batched" } else { "" };
            format!("{shape}Using{partitioned}Service{asynchronous}{batched}")
        }
        (op, _) => op.name().replace('_', "-"),
    }
}
