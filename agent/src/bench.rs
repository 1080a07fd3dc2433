//! What the stream manager's slots cost on this machine (`tuplane-agent bench`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tuplane_core::route::{DEAL, Policies, RouteOptions, Setting, Targets, make_policy};
use tuplane_expr::arrow::array::{Int64Array, RecordBatch};
use tuplane_expr::arrow::datatypes::{DataType, Field, Schema};

use crate::engine::rows::{Budget, Rows};
use crate::exchange::costs::Costs;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec, Route};
use crate::exchange::inbox::{Inbox, InputSpec, Taken, Upstream};
use crate::exchange::manager::Manager;
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};
use crate::exchange::priced::Slots;

/// Senders of the edge, and targets of each.
const INSTANCES: u32 = 64;
/// A slot.
const SLOT: Duration = Duration::from_millis(5);
/// Each case is measured for so long, after a tenth of it.
const TIME: Duration = Duration::from_secs(5);
/// Bytes that each queue may hold: more than ever waits here.
const BOUND: u64 = 8 << 20;

/// Measures and gives one line: percent of a core that the thread of the slots uses, over that of an empty ticker,
/// while rows are held, and while a row of each sender leaves at each slot's end. Without rows there are no slots.
pub(crate) fn stream_manager() -> Result<Value> {
    let ticker = percent(async {
        let mut ticks = tokio::time::interval(SLOT);
        loop {
            ticks.tick().await;
        }
    })?;
    let (_, idle) = World::new("100ms")?.measure(false)?;
    let (held, _) = World::new("1h")?.measure(true)?;
    let (released, slots) = World::new("100ms")?.measure(true)?;
    let rounded = |x: f64| (x * 1000.0).round() / 1000.0;
    Ok(json!({
        "workload": "stream-manager", "senders": INSTANCES, "targets": INSTANCES,
        "slot_ms": SLOT.as_secs_f64() * 1e3, "ticker_percent": rounded(ticker),
        "held_percent": rounded(held - ticker), "released_percent": rounded(released - ticker),
        "slots": slots, "slots_without_rows": idle,
    }))
}

/// One edge whose senders and targets are all here, and at whose prices nothing is ever worth sending.
struct World {
    edge: Arc<Edge>,
    inboxes: Vec<Arc<Inbox>>,
    budget: Arc<Budget>,
    slots: Slots,
}

impl World {
    fn new(max_hold: &str) -> Result<Self> {
        let budget = Budget::new(1 << 30);
        let wake = Arc::<Notify>::default();
        let (mut inboxes, mut outlets) = (Vec::new(), Vec::new());
        for instance in 0..INSTANCES {
            let credit = Credit::new(Arc::clone(&wake));
            let channels = vec![Upstream::Local(Arc::clone(&credit))];
            let inputs = vec![InputSpec { edge: 0, priority: 0, channels }];
            let inbox = Inbox::new(inputs, BOUND, Arc::clone(&budget));
            let link = Link::Local { inbox: Arc::clone(&inbox), channel: 0 };
            let agent = instance as u16;
            outlets.push(Outlet { instance, agent, credit, link, sent_rows: 0, sent_bytes: 0 });
            inboxes.push(inbox);
        }
        let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: DEAL, routes: Routes::Any };
        let edge = Edge::new(spec, Outlets::new(outlets), wake);
        for sender in 0..INSTANCES {
            let targets = Targets::new([(0..INSTANCES).collect::<Vec<_>>()]);
            let policy = make_policy("round-robin", 0).context("no round-robin")?;
            let queue = OutQueue::pool(policy, targets, (0..INSTANCES as usize).collect());
            edge.add_sender(INSTANCES + sender, queue, BOUND, Arc::default());
        }
        let slots = Slots::begin();
        let given = BTreeMap::from([
            ("v".to_owned(), json!(1e6)),
            ("slot".to_owned(), json!(format!("{}ms", SLOT.as_millis()))),
            ("max_hold".to_owned(), json!(max_hold)),
        ]);
        let options = RouteOptions::read(&given, Setting::Default)
            .map_err(|errors| anyhow::anyhow!("options of the benchmark: {errors:?}"))?;
        let set = edge.set_route(&Route {
            policies: &Policies::default(),
            name: "potus",
            options: &options,
            given: "{}",
            costs: &Costs::table(&[1; INSTANCES as usize]),
            of_source: false,
            me: u16::MAX,
            slots: &slots,
        });
        set.map_err(anyhow::Error::msg)?;
        Ok(Self { edge, inboxes, budget, slots })
    }

    /// Percent of a core that its slots use, and how many there were. With `rows` each sender gets one in each
    /// slot, and what has left is taken, both on a thread of their own.
    fn measure(self, rows: bool) -> Result<(f64, u64)> {
        let manager = Manager::new(self.slots.clone(), vec![vec![Arc::clone(&self.edge)]]);
        let ended = AtomicBool::new(false);
        let used = std::thread::scope(|scope| {
            let feeder = scope.spawn(|| self.feed(rows, &ended));
            let used = percent(manager.run());
            ended.store(true, Ordering::Relaxed);
            match feeder.join() {
                Ok(fed) => fed.and(used),
                Err(_) => Err(anyhow::anyhow!("the thread that makes rows has failed")),
            }
        })?;
        let slots = self.edge.routing(&mut 0).map_or(0, |routing| routing.slots);
        Ok((used, slots))
    }

    fn feed(&self, rows: bool, ended: &AtomicBool) -> Result<()> {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let mut next = Instant::now();
        while !ended.load(Ordering::Relaxed) {
            for sender in (0..INSTANCES as usize).filter(|_| rows) {
                let column = Arc::new(Int64Array::from(vec![sender as i64]));
                let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column])?;
                let rows = Rows::new(batch, None, &self.budget).context("no memory for a row")?;
                self.edge.append(sender, rows).map_err(|e| anyhow::anyhow!("a row was not taken: {e:?}"))?;
            }
            for inbox in &self.inboxes {
                while matches!(inbox.take(1024, false).map_err(anyhow::Error::msg)?, Taken::Rows { .. }) {}
            }
            next += SLOT;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Percent of a core that a task uses on a thread of its own while it runs; it is dropped then.
fn percent(task: impl Future) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        tokio::select! {
            _ = task => anyhow::bail!("what is measured has ended"),
            used = measured() => used,
        }
    })
}

async fn measured() -> Result<f64> {
    tokio::time::sleep(TIME / 10).await;
    let (began, before) = (Instant::now(), cpu()?);
    tokio::time::sleep(TIME).await;
    Ok((cpu()? - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0)
}

/// CPU time of this thread.
fn cpu() -> Result<Duration> {
    const PATH: &str = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    let spent = text.split_whitespace().next().context("an odd schedstat file")?;
    Ok(Duration::from_nanos(spent.parse()?))
}
