//! An inbox that is read by channel: who merges gets rows of the channels that it asks for, and no others.

use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch};

use super::*;

fn inbox(channels: usize) -> (Arc<Inbox>, Arc<Budget>) {
    let budget = Budget::new(1 << 20);
    let upstream = |_| Upstream::Local(Credit::new(Arc::new(Notify::new())));
    let input = InputSpec { edge: 0, priority: 0, channels: (0..channels).map(upstream).collect() };
    let inbox = Inbox::new(vec![input], 64 << 10, Arc::clone(&budget));
    inbox.read_by_channel();
    (inbox, budget)
}

fn give(inbox: &Inbox, budget: &Arc<Budget>, channel: usize, rows: i64) {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
    inbox.push(channel, Item::Rows(Rows::new(batch, None, budget).unwrap()));
}

/// What it gives, in words.
fn taken(inbox: &Inbox) -> String {
    match inbox.take(100, false).unwrap() {
        Taken::Rows { channel, rows, .. } => format!("{} of {channel}", rows.len()),
        Taken::ChannelEnded(channel) => format!("end of {channel}"),
        Taken::Ended => "end".to_owned(),
        Taken::Nothing => "nothing".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_channel_is_read_when_it_is_asked_for_and_its_end_is_told() {
    let (inbox, budget) = inbox(2);
    for rows in 1..4 {
        give(&inbox, &budget, 0, rows);
    }
    inbox.push(0, Item::Mark(Mark::End));
    assert_eq!(taken(&inbox), "1 of 0");
    assert_eq!(taken(&inbox), "nothing", "it has rows of 0, and 1 has none");
    give(&inbox, &budget, 1, 9);
    assert_eq!(taken(&inbox), "9 of 1");
    assert_eq!(taken(&inbox), "nothing");
    for expected in ["2 of 0", "nothing", "3 of 0", "nothing", "end of 0", "nothing"] {
        if expected != "nothing" {
            inbox.ask(0);
        }
        assert_eq!(taken(&inbox), expected);
    }
    inbox.ask(1);
    inbox.push(1, Item::Mark(Mark::End));
    assert_eq!(taken(&inbox), "end");
}

#[test]
fn inputs_behind_one_without_channels_are_read_from_the_start() {
    let budget = Budget::new(1 << 20);
    let credit = Credit::new(Arc::new(Notify::new()));
    let channels = vec![Upstream::Local(Arc::clone(&credit))];
    let inputs = vec![
        InputSpec { edge: 0, priority: 0, channels },
        InputSpec { edge: 1, priority: -1, channels: Vec::new() },
    ];
    let inbox = Inbox::new(inputs, 64 << 10, budget);
    assert_eq!(taken(&inbox), "nothing");
    assert!(credit.is_read(), "its sender waits on disk for a side that never ends");
}
