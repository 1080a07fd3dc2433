//! `work`: takes a known time per row, so that an experiment has an operator of known cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tuplane_core::job::{self, MAX_WORK_MS, Spread, WorkMode};

use super::clock::Clock;
use super::cores::{Cores, TURN, Turn};
use super::timer::Timer;

/// Shape of the Pareto distribution: its mean is `scale * SHAPE / (SHAPE - 1)`.
const PARETO_SHAPE: f64 = 2.5;

/// A busy loop gives way this often.
const SLICE: Duration = Duration::from_millis(5);

/// One instance's work.
#[derive(Debug)]
pub(crate) struct Work {
    ms: Vec<f64>,
    instance_number: usize,
    spread: Spread,
    mode: WorkMode,
    /// When the work so far ends by the schedule. Waits are to absolute instants: one that ends
    /// late makes the next one shorter, so that the mean is exact.
    due: Instant,
    /// Nanoseconds that the instance had not been busy when the work so far ended, or that it had waited for a
    /// core: the schedule stands still meanwhile, else a row that comes after a pause would take less than its time.
    paused: u64,
    lots: SmallRng,
    timer: Timer,
    /// The agent's cores, where it says how many it has.
    cores: Option<Arc<Cores>>,
}

impl Work {
    pub(crate) fn new(
        work: &job::Work,
        instance_number: u32,
        timer: Timer,
        cores: Option<Arc<Cores>>,
    ) -> Self {
        Self {
            ms: work.ms.clone(),
            instance_number: instance_number as usize,
            spread: work.spread,
            mode: work.mode,
            due: Instant::now(),
            paused: 0,
            lots: SmallRng::seed_from_u64(u64::from(instance_number)),
            timer,
            cores,
        }
    }

    /// Mean time of a row.
    pub(crate) fn mean(&self) -> Duration {
        let ms = self.ms.get(self.instance_number).or(self.ms.last()).copied().unwrap_or(0.0);
        Duration::from_secs_f64(ms.clamp(0.0, MAX_WORK_MS) / 1e3)
    }

    /// It passes its time in a busy loop.
    pub(crate) fn spins(&self) -> bool {
        self.mode == WorkMode::Spin
    }

    /// Changes a live option that `Op::live` has read.
    pub(crate) fn set(&mut self, option: &str, value: &serde_json::Value) -> Result<(), String> {
        let list = match value {
            serde_json::Value::Array(list) => list.iter().map(serde_json::Value::as_f64).collect(),
            single => single.as_f64().map(|ms| vec![ms]),
        };
        match (option, list) {
            ("ms", Some(list)) if !list.is_empty() => {
                self.ms = list;
                Ok(())
            }
            _ => Err(format!("`{option}` of `work` cannot become {value}")),
        }
    }

    /// Passes the time of so many rows.
    pub(crate) async fn run(&mut self, rows: usize, clock: &Clock) {
        let mean = self.mean();
        if mean.is_zero() {
            return;
        }
        let time: Duration = match self.spread {
            Spread::None => mean * rows as u32,
            Spread::Exp | Spread::Pareto => (0..rows).map(|_| mean.mul_f64(self.lot())).sum(),
        };
        let Some(cores) = self.cores.clone() else {
            self.pass(time, None, clock).await;
            return;
        };
        let mut left = time;
        while !left.is_zero() {
            let turn = left.min(TURN);
            self.pass(turn, Some(cores.turn(clock).await), clock).await;
            left -= turn;
        }
    }

    /// Passes so much time, and gives its core back.
    async fn pass(&mut self, time: Duration, core: Option<Turn>, clock: &Clock) {
        let (now, times) = (Instant::now(), clock.read());
        let paused = times.idle + times.blocked + times.waiting_core;
        match self.mode {
            WorkMode::Sleep => {
                self.due += Duration::from_nanos(paused.saturating_sub(self.paused));
                self.paused = paused;
                if let Some(core) = &core {
                    self.due = self.due.max(core.since());
                }
                // Behind the schedule by more than a step: others had the machine.
                let late = now.saturating_duration_since(self.due) > Duration::from_millis(3);
                self.due = if late { now } else { self.due } + time;
                self.timer.sleep_until(self.due).await;
                if let Some(mut core) = core {
                    core.until(self.due);
                }
            }
            WorkMode::Spin => {
                let end = now + time;
                let mut turn = now;
                while turn < end {
                    let slice = end.min(turn + SLICE);
                    while Instant::now() < slice {
                        std::hint::spin_loop();
                    }
                    // A cancelled job ends here, and not after the row's whole time.
                    tokio::task::yield_now().await;
                    turn = Instant::now();
                }
            }
        }
    }

    /// A factor with mean 1.
    fn lot(&mut self) -> f64 {
        let u: f64 = 1.0 - self.lots.random::<f64>();
        match self.spread {
            Spread::None => 1.0,
            Spread::Exp => -u.ln(),
            Spread::Pareto => (PARETO_SHAPE - 1.0) / PARETO_SHAPE * u.powf(-1.0 / PARETO_SHAPE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::Doing;

    fn work(ms: f64, spread: Spread) -> Work {
        let options = job::Work { ms: vec![ms], spread, mode: WorkMode::Sleep };
        Work::new(&options, 0, Timer::start().unwrap(), None)
    }

    #[tokio::test]
    async fn rows_of_a_steady_time_never_take_less() {
        let clock = Clock::new(Instant::now());
        let mut work = work(2.0, Spread::None);
        let start = Instant::now();
        for _ in 0..100 {
            work.run(1, &clock).await;
        }
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn pauses_between_rows_make_none_shorter() {
        let clock = Clock::new(Instant::now());
        let mut work = work(2.0, Spread::None);
        for _ in 0..60 {
            clock.set(Doing::Busy);
            work.run(1, &clock).await;
            clock.set(Doing::Idle);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // But for what the last wait was late, which the next would make good.
        assert!(clock.read().busy >= 117_000_000, "{:?}", clock.read());
    }

    #[tokio::test]
    async fn waits_for_a_core_make_no_row_shorter() {
        let cores = Arc::new(Cores::new(1));
        let one = |number| {
            let options = job::Work { ms: vec![2.0], spread: Spread::None, mode: WorkMode::Sleep };
            Work::new(&options, number, Timer::start().unwrap(), Some(Arc::clone(&cores)))
        };
        let start = Instant::now();
        let rows = |mut work: Work| async move {
            let clock = Clock::new(start);
            clock.set(Doing::Busy);
            for _ in 0..30 {
                work.run(1, &clock).await;
            }
        };
        tokio::join!(rows(one(0)), rows(one(1)));
        assert!(start.elapsed() >= Duration::from_millis(114), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn who_takes_many_rows_at_once_gets_no_more_of_a_core() {
        let cores = Arc::new(Cores::new(1));
        let one = |number, ms| {
            let options = job::Work { ms: vec![ms], spread: Spread::None, mode: WorkMode::Sleep };
            Work::new(&options, number, Timer::start().unwrap(), Some(Arc::clone(&cores)))
        };
        let (mut single, mut many) = (one(0, 2.0), one(1, 10.0));
        let clocks = [Clock::new(Instant::now()), Clock::new(Instant::now())];
        for clock in &clocks {
            clock.set(Doing::Busy);
        }
        // 40 rows of 2 ms each beside 8 of 10 ms, four at a time: 80 ms of work each.
        tokio::join!(
            async {
                for _ in 0..40 {
                    single.run(1, &clocks[0]).await;
                }
            },
            async {
                for _ in 0..2 {
                    many.run(4, &clocks[1]).await;
                }
            }
        );
        // In turns each waits as long as the other works; with a core for all rows of a batch the one would hardly wait.
        let [single, many] = clocks.map(|clock| clock.read().waiting_core as f64 / 1e6);
        assert!(single < 2.0 * many + 20.0 && many < 2.0 * single + 20.0, "{single} ms and {many} ms");
    }

    #[tokio::test]
    async fn so_many_cores_do_no_more_than_so_much_work() {
        let cores = Arc::new(Cores::new(2));
        let options = job::Work { ms: vec![1.0], spread: Spread::None, mode: WorkMode::Sleep };
        let begin = Instant::now();
        let all = (0..5).map(|number| {
            let mut work = Work::new(&options, number, Timer::start().unwrap(), Some(Arc::clone(&cores)));
            async move {
                let clock = Clock::new(begin);
                clock.set(Doing::Busy);
                for _ in 0..40 {
                    work.run(1, &clock).await;
                }
            }
        });
        futures::future::join_all(all).await;
        // 200 ms of work; what the last turns were late by would be made good by the next ones.
        assert!(begin.elapsed() >= Duration::from_millis(99), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn a_busy_loop_gives_way_and_can_be_dropped() {
        let options = job::Work { ms: vec![60_000.0], spread: Spread::None, mode: WorkMode::Spin };
        let mut work = Work::new(&options, 0, Timer::start().unwrap(), None);
        let (clock, start) = (Clock::new(Instant::now()), Instant::now());
        let limit = Duration::from_millis(20);
        assert!(tokio::time::timeout(limit, work.run(1, &clock)).await.is_err());
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        work.ms = vec![12.0];
        let start = Instant::now();
        work.run(1, &clock).await;
        assert!(start.elapsed() >= Duration::from_millis(12));
    }

    #[test]
    fn spreads_keep_the_mean() {
        for spread in [Spread::Exp, Spread::Pareto] {
            let mut work = work(1.0, spread);
            let mean = (0..200_000).map(|_| work.lot()).sum::<f64>() / 200_000.0;
            assert!((0.97..1.03).contains(&mean), "{spread:?}: {mean}");
        }
    }

    #[test]
    fn only_sensible_values_are_taken() {
        let mut work = work(1.0, Spread::None);
        assert!(work.set("ms", &serde_json::json!(10)).is_ok());
        assert_eq!(work.mean(), Duration::from_millis(10));
        assert!(work.set("ms", &serde_json::json!([3, 4])).is_ok());
        assert_eq!(work.mean(), Duration::from_millis(3));
        for bad in [serde_json::json!("fast"), serde_json::json!([])] {
            assert!(work.set("ms", &bad).is_err(), "{bad}");
        }
        assert!(work.set("mode", &serde_json::json!("spin")).is_err());
    }
}
