//! An inbox that is read by channel: who merges gets rows of the channels that it asks for, and no others.

use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

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

fn ended(inbox: &Inbox, channel: usize) {
    inbox.push(channel, Item::Mark(Mark::End));
}

fn in_turn(channels: usize) -> (Arc<Inbox>, Arc<Budget>) {
    let (inbox, budget) = inbox(channels);
    lock(&inbox.state).reading = Reading::InTurn;
    (inbox, budget)
}

fn upstream() -> Upstream {
    Upstream::Local(Credit::new(Arc::new(Notify::new())))
}

#[test]
fn a_sender_that_joins_holds_the_watermark_until_its_first_one() {
    let (inbox, _budget) = in_turn(1);
    inbox.push(0, Item::Mark(Mark::Watermark(5)));
    assert_eq!(taken(&inbox), "Watermark(5)");
    let new = inbox.join(0, upstream()).unwrap();
    inbox.push(0, Item::Mark(Mark::Watermark(9)));
    assert_eq!(taken(&inbox), "nothing", "it stands at 5");
    inbox.push(new, Item::Mark(Mark::Watermark(7)));
    assert_eq!(taken(&inbox), "Watermark(7)");
    // One that does not come lets go, and one whose place others take does not end with the former.
    let gone = inbox.join(0, upstream()).unwrap();
    inbox.leave(gone);
    inbox.push(new, Item::Mark(Mark::Watermark(8)));
    let mut seen = [taken(&inbox), taken(&inbox)];
    seen.sort();
    assert_eq!(seen, ["Watermark(8)", "nothing"]);
    ended(&inbox, 0);
    assert_eq!(taken(&inbox), "nothing");
    assert!(inbox.join(0, upstream()).is_ok());
}

#[test]
fn a_channel_that_is_opened_again_outlives_the_end_before_whenever_it_comes() {
    for end_first in [true, false] {
        let (inbox, budget) = in_turn(2);
        if end_first {
            ended(&inbox, 0);
            assert_eq!(taken(&inbox), "nothing");
        }
        inbox.reopen(0).unwrap();
        if !end_first {
            ended(&inbox, 0);
        }
        ended(&inbox, 1);
        assert_eq!(taken(&inbox), "nothing", "somebody is to come on 0");
        give(&inbox, &budget, 0, 3);
        assert_eq!(taken(&inbox), "3 of 0");
        ended(&inbox, 0);
        assert_eq!(taken(&inbox), "end");
        assert!(inbox.join(0, upstream()).is_err() && inbox.reopen(0).is_err(), "it is too late");
    }
}

#[test]
fn when_all_are_idle_one_that_joins_is_not() {
    let (inbox, _budget) = in_turn(1);
    inbox.push(0, Item::Mark(Mark::Watermark(3)));
    inbox.push(0, Item::Mark(Mark::Idle));
    assert_eq!([taken(&inbox), taken(&inbox)], ["Watermark(3)", "Idle"]);
    let new = inbox.join(0, upstream()).unwrap();
    assert_eq!([taken(&inbox), taken(&inbox)], ["Watermark(3)", "nothing"], "it is awake again");
    inbox.push(new, Item::Mark(Mark::Watermark(3)));
    inbox.push(new, Item::Mark(Mark::Idle));
    assert_eq!([taken(&inbox), taken(&inbox)], ["Idle", "nothing"]);
}

#[test]
fn few_rows_on_many_channels_leave_their_size_as_it_is() {
    const CHANNELS: usize = 8;
    const BOUND: u64 = 64 << 10;
    let budget = Budget::new(64 << 20);
    let upstream = |_| Upstream::Local(Credit::new(Arc::new(Notify::new())));
    let input = InputSpec { edge: 0, priority: 0, channels: (0..CHANNELS).map(upstream).collect() };
    let inbox = Inbox::new(vec![input], BOUND, Arc::clone(&budget));
    let mut size = 0;
    // Each channel has a wide row in every second tenth of a second.
    for step in 0..200 {
        for channel in (0..CHANNELS).filter(|channel| (channel + step) % 2 == 0) {
            let column: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(4000)]));
            let rows =
                Rows::new(RecordBatch::try_from_iter([("x", column)]).unwrap(), None, &budget).unwrap();
            size = rows.bytes();
            inbox.push(channel, Item::Rows(rows));
            assert!(matches!(inbox.take(1, false).unwrap(), Taken::Rows { .. }));
        }
        inbox.adapt(1000, true);
        let windows: u64 = lock(&inbox.state).channels.iter().map(|channel| channel.window).sum();
        assert!(windows <= BOUND.max(2 * (size + 8) * CHANNELS as u64), "step {step}: {windows} bytes");
    }
}

#[test]
fn a_channel_is_read_behind_another_one_and_never_both_behind_each_other() {
    let (inbox, budget) = in_turn(3);
    inbox.read_behind(1, 0);
    give(&inbox, &budget, 1, 1);
    assert_eq!(taken(&inbox), "1 of 1", "nothing had come on 0");
    give(&inbox, &budget, 0, 5);
    give(&inbox, &budget, 1, 2);
    inbox.read_behind(1, 0);
    give(&inbox, &budget, 1, 3);
    inbox.push(1, Item::Mark(Mark::End));
    inbox.read_behind(0, 1);
    inbox.read_behind(0, 1);
    give(&inbox, &budget, 0, 4);
    give(&inbox, &budget, 2, 6);
    let mut order: Vec<String> = (0..6).map(|_| taken(&inbox)).collect();
    assert_eq!(order.pop().unwrap(), "nothing");
    let place = |what: &str| order.iter().position(|one| one == what).unwrap();
    assert!(place("5 of 0") < place("3 of 1") && place("3 of 1") < place("4 of 0"), "{order:?}");
    assert!(place("2 of 1") < place("3 of 1"), "{order:?}");
    give(&inbox, &budget, 0, 7);
    assert_eq!(taken(&inbox), "7 of 0", "nothing waits any more");
}
