//! The loop: events in, effects out, a picture at most ten times a second and only if something changed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self as terminal, MouseButton, MouseEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::effect::{self, Asks, Effect, Quit, Subject};
use super::event::{Event, Mouse, News, Telemetry, What, coalesce};
use super::key::Key;
use super::model::link::Link;
use super::model::{Model, Options};
use super::record::{Recorder, Recording};
use super::term::{self, Term};
use super::update::update;
use super::view;

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(100);

/// Events that wait to be handled: more than this, and who sends waits too.
const WAITING: usize = 1024;

/// How often the reader of keys looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Without a cluster it is looked for so often.
const FIND: Duration = Duration::from_secs(2);

/// A stop signal so soon after going on again is the one that stopped us.
const ECHO: Duration = Duration::from_millis(500);

/// Why the UI has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It was asked to.
    Asked,
    /// Ctrl-C, or SIGINT.
    Interrupted,
    /// Another signal that ends a process: its number.
    Signal(i32),
    /// Something panicked; it has said so.
    Panicked,
    /// The terminal, or the recording, cannot be written.
    Broken(String),
}

/// Where telemetry comes from.
pub(crate) enum Feed<A, S> {
    /// A cluster.
    Cluster(Arc<A>),
    /// None yet: why, and what starts one.
    Nobody(String, S),
    /// One moment, a plan.
    Still(Box<Telemetry>),
    /// A recording.
    Recording(Recording),
}

/// The cluster that is being started.
pub(crate) type Starting<A> = Pin<Box<dyn Future<Output = Result<Arc<A>, String>> + Send>>;

/// What starts local agents with the demo job; the cluster then is asked.
pub(crate) trait Starts<A> {
    /// Starts them.
    fn start(&self) -> Starting<A>;
    /// A cluster that somebody else has started meanwhile, or why there is none to ask.
    fn find(&self) -> Result<Arc<A>, String>;
}

/// What the UI runs with.
pub(crate) struct Setup {
    /// Colours, marks, what may be done.
    pub(crate) options: Options,
    /// The mouse is listened to.
    pub(crate) mouse: bool,
    /// Events are written there.
    pub(crate) record: Option<PathBuf>,
}

/// Only for tests, and only in a build with assertions: the value `draw`, `task` or `update` makes that part
/// panic on the first key `X`.
const PANIC: &str = "TUPLANE_TEST_PANIC";

/// Runs the UI until it ends.
pub(crate) async fn run<A: Asks, S: Starts<A>>(setup: Setup, feed: Feed<A, S>) -> Result<End, String> {
    let (width, height) = term::size();
    let recorder = match &setup.record {
        Some(path) => {
            // Nothing that was recorded before is written over.
            let file = File::create_new(path).and_then(|file| Recorder::new(file, (width, height)));
            Some(file.map_err(|cause| match cause.kind() {
                io::ErrorKind::AlreadyExists => {
                    format!("{} exists already; --record writes a new file only", path.display())
                }
                _ => format!("cannot write {}: {cause}", path.display()),
            })?)
        }
        None => None,
    };
    let signals = Signals::listen().map_err(|cause| format!("cannot listen for signals: {cause}"))?;
    let term = Term::take(setup.mouse).map_err(|cause| format!("cannot take the terminal: {cause}"))?;
    let (out, inbox) = mpsc::channel(WAITING);
    let (watched, watching) = watch::channel(None);
    let (routed, routing) = watch::channel(None);
    let (flowed, flowing) = watch::channel(None);
    let keys = Keys::read(out.clone());
    let mut model = Model::new(setup.options);
    // A recording begins with its own size.
    if !matches!(feed, Feed::Recording(_)) {
        update(&mut model, Event { at: 0, what: What::Resize { width, height } });
    }
    let mut app = App {
        term,
        model,
        start: Instant::now(),
        out,
        watched,
        watching,
        routed,
        routing,
        flowed,
        flowing,
        asks: None,
        recorder,
        panics: std::env::var(PANIC).ok().filter(|_| cfg!(debug_assertions)),
        changed: true,
        drawn: None,
        looked: Instant::now(),
        went_on: None,
    };
    let starts = app.feed(feed);
    let end = app.until_end(inbox, signals, starts).await;
    drop(keys);
    drop(app);
    Ok(end)
}

/// Signals that end or stop the UI.
struct Signals {
    int: Signal,
    stop: Signal,
    ends: Vec<(SignalKind, Signal)>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        // All that would end the process by themselves, and with the terminal as it is; ABRT is left out, for
        // who aborts does not come back here.
        let ends = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::alarm(),
        ];
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            stop: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            ends: ends.into_iter().map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?,
        })
    }
}

/// The number of the first of these signals that comes.
async fn any_of(signals: &mut [(SignalKind, Signal)]) -> i32 {
    std::future::poll_fn(|context| {
        let mut came = signals
            .iter_mut()
            .filter_map(|(kind, signal)| signal.poll_recv(context).is_ready().then(|| kind.as_raw_value()));
        came.next().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The thread that reads the terminal; it ends with this.
struct Keys(Arc<AtomicBool>);

impl Keys {
    fn read(out: mpsc::Sender<What>) -> Self {
        let wanted = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&wanted);
        // A thread of its own: reading a terminal blocks.
        std::thread::spawn(move || {
            while still.load(Ordering::SeqCst) {
                match terminal::poll(LOOK) {
                    Ok(false) => {}
                    Ok(true) => match terminal::read() {
                        Ok(event) => {
                            if translate(event).is_some_and(|what| out.blocking_send(what).is_err()) {
                                return;
                            }
                        }
                        Err(_) => std::thread::sleep(LOOK),
                    },
                    // The terminal is gone, or not ours for a while.
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Self(wanted)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A terminal's event as ours; moves of the mouse and the like are none.
fn translate(event: terminal::Event) -> Option<What> {
    match event {
        terminal::Event::Key(key) => Key::from_terminal(key).map(What::Key),
        terminal::Event::Paste(text) => Some(What::Paste(text)),
        terminal::Event::Resize(width, height) => Some(What::Resize { width, height }),
        terminal::Event::Mouse(mouse) => Some(What::Mouse(match mouse.kind {
            MouseEventKind::ScrollUp => Mouse::Up,
            MouseEventKind::ScrollDown => Mouse::Down,
            MouseEventKind::Down(MouseButton::Left) => Mouse::Press(mouse.column, mouse.row),
            _ => return None,
        })),
        _ => None,
    }
}

struct App<A> {
    term: Term,
    model: Model,
    start: Instant,
    out: mpsc::Sender<What>,
    watched: watch::Sender<Option<u64>>,
    watching: watch::Receiver<Option<u64>>,
    /// The run whose routes are asked for.
    routed: watch::Sender<Option<u64>>,
    routing: watch::Receiver<Option<u64>>,
    /// The run whose rates are asked for.
    flowed: watch::Sender<Option<u64>>,
    flowing: watch::Receiver<Option<u64>>,
    asks: Option<Arc<A>>,
    recorder: Option<Recorder<File>>,
    panics: Option<String>,
    /// Something has changed since it was drawn last.
    changed: bool,
    drawn: Option<Instant>,
    /// A cluster was looked for then.
    looked: Instant,
    went_on: Option<Instant>,
}

type Started<A> = Result<Arc<A>, String>;

impl<A: Asks> App<A> {
    fn feed<S: Starts<A>>(&mut self, feed: Feed<A, S>) -> Option<S> {
        match feed {
            Feed::Cluster(asks) => self.ask_from_now_on(asks),
            Feed::Nobody(why, starts) => {
                self.take(What::Connection(News::Nobody(why)));
                return Some(starts);
            }
            Feed::Still(telemetry) => {
                self.take(What::Telemetry(telemetry));
            }
            Feed::Recording(Recording { events, cut }) => {
                let (out, start) = (self.out.clone(), self.start);
                tokio::spawn(async move {
                    for event in events {
                        let due = Duration::from_millis(event.at);
                        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
                        if out.send(What::Replayed(Box::new(event.what))).await.is_err() {
                            return;
                        }
                    }
                    // A UI that has ended needs to know no more.
                    let _ = out.send(What::PlayedToTheEnd(cut)).await;
                });
            }
        }
        None
    }

    fn ask_from_now_on(&mut self, asks: Arc<A>) {
        self.asks = Some(Arc::clone(&asks));
        tokio::spawn(effect::poll(Arc::clone(&asks), self.watching.clone(), self.out.clone()));
        for (subject, wanted) in [(Subject::Routes, &self.routing), (Subject::Etp, &self.flowing)] {
            let (asks, wanted) = (Arc::clone(&asks), wanted.clone());
            tokio::spawn(effect::poll_shown(asks, subject, wanted, self.out.clone()));
        }
    }

    async fn until_end<S: Starts<A>>(
        &mut self,
        mut inbox: mpsc::Receiver<What>,
        mut signals: Signals,
        starts: Option<S>,
    ) -> End {
        let (started, mut starting) = mpsc::channel::<Started<A>>(1);
        let mut tick = tokio::time::interval(FRAME);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let what = tokio::select! {
                biased;
                number = any_of(&mut signals.ends) => return End::Signal(number),
                _ = signals.int.recv() => return End::Interrupted,
                _ = signals.stop.recv() => {
                    if self.went_on.is_none_or(|at| at.elapsed() > ECHO)
                        && let Err(cause) = self.suspend()
                    {
                        return End::Broken(cause.to_string());
                    }
                    continue;
                }
                Some(result) = starting.recv() => match result {
                    Ok(asks) => {
                        self.ask_from_now_on(asks);
                        continue;
                    }
                    Err(why) => What::Connection(News::Nobody(why)),
                },
                what = inbox.recv() => what.unwrap_or(What::Tick),
                _ = tick.tick() => {
                    self.look_again(starts.as_ref());
                    What::Tick
                }
            };
            let events = self.with_those_that_wait(what, &mut inbox);
            // A defect in here has been said by the hook; what was started here still has to be ended.
            let turn = || self.turn(events, starts.as_ref(), &started);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(turn)) {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(end))) => return end,
                Ok(Err(cause)) => return End::Broken(cause.to_string()),
                Err(_) => return End::Panicked,
            }
            if term::has_panicked() {
                return End::Panicked;
            }
        }
    }

    /// Without a cluster: one that was started elsewhere is shown as soon as it is there.
    fn look_again<S: Starts<A>>(&mut self, starts: Option<&S>) {
        let nobody = self.asks.is_none() && matches!(self.model.link, Link::Nobody { .. });
        let Some(starts) = starts.filter(|_| nobody && self.looked.elapsed() >= FIND) else { return };
        self.looked = Instant::now();
        match starts.find() {
            Ok(asks) => {
                self.take(What::Connection(News::Connecting));
                self.ask_from_now_on(asks);
            }
            Err(why) => {
                self.take(What::Connection(News::Nobody(why)));
            }
        }
    }

    /// Handles events, does what they lead to, and draws if something has changed.
    fn turn<S: Starts<A>>(
        &mut self,
        events: Vec<What>,
        starts: Option<&S>,
        started: &mpsc::Sender<Started<A>>,
    ) -> io::Result<Option<End>> {
        for what in events {
            for effect in self.take(what) {
                if let Some(end) = self.act(effect, starts, started)? {
                    return Ok(Some(end));
                }
            }
        }
        // A panic elsewhere has given the terminal back: nothing may be drawn any more.
        if !term::has_panicked() {
            self.draw()?;
        }
        Ok(None)
    }

    /// What has come meanwhile is handled in one go, floods as one.
    fn with_those_that_wait(&self, first: What, inbox: &mut mpsc::Receiver<What>) -> Vec<What> {
        let at = self.start.elapsed().as_millis() as u64;
        let mut events = vec![Event { at, what: first }];
        for _ in 0..WAITING {
            let Ok(what) = inbox.try_recv() else { break };
            let next = Event { at, what };
            let rest = match events.last_mut() {
                Some(last) => coalesce(last, next),
                None => Some(next),
            };
            events.extend(rest);
        }
        events.into_iter().map(|event| event.what).collect()
    }

    fn take(&mut self, what: What) -> Vec<Effect> {
        let event = Event { at: self.start.elapsed().as_millis() as u64, what };
        if self.panics.is_some() {
            self.panic_if_wanted(&event);
        }
        if let Some(recorder) = &mut self.recorder
            && let Err(cause) = recorder.write(&event)
        {
            self.recorder = None;
            let answer = Err(format!("the recording ends here: {cause}"));
            self.update(Event { at: event.at, what: What::Reply(answer) });
        }
        self.update(event)
    }

    fn update(&mut self, event: Event) -> Vec<Effect> {
        let effects = update(&mut self.model, event);
        self.changed |= self.model.changed;
        effects
    }

    fn panic_if_wanted(&mut self, event: &Event) {
        let What::Key(key) = &event.what else { return };
        if key.typed() != Some('X') {
            return;
        }
        match self.panics.as_deref() {
            Some("task") => {
                tokio::spawn(async { panic!("a panic in a task, as the test wants") });
            }
            Some("update") => panic!("a panic in update, as the test wants"),
            Some("draw") => self.panics = Some("draw now".to_owned()),
            _ => {}
        }
    }

    /// Does what `update` wants done.
    fn act<S: Starts<A>>(
        &mut self,
        effect: Effect,
        starts: Option<&S>,
        started: &mpsc::Sender<Started<A>>,
    ) -> io::Result<Option<End>> {
        match effect {
            Effect::Ask(ask) => {
                if let Some(asks) = &self.asks {
                    tokio::spawn(effect::ask(Arc::clone(asks), ask, self.out.clone()));
                }
            }
            Effect::Plan { run, ask } => {
                if let Some(asks) = &self.asks {
                    tokio::spawn(effect::plan(Arc::clone(asks), run, ask, self.out.clone()));
                }
            }
            Effect::Watch(run) => {
                self.watched.send_replace(Some(run));
            }
            Effect::Routes(run) => {
                self.routed.send_replace(run);
            }
            Effect::Etp(run) => {
                self.flowed.send_replace(run);
            }
            Effect::StartLocal => {
                let Some(starts) = starts else { return Ok(None) };
                self.take(What::Connection(News::Starting));
                let (work, started) = (starts.start(), started.clone());
                tokio::spawn(async move {
                    // A UI that has ended meanwhile ends what it started.
                    let _ = started.send(work.await).await;
                });
            }
            Effect::Suspend => self.suspend()?,
            Effect::Redraw => {
                self.term.forget()?;
                self.changed = true;
            }
            Effect::Quit(Quit::Asked) => return Ok(Some(End::Asked)),
            Effect::Quit(Quit::Interrupted) => return Ok(Some(End::Interrupted)),
        }
        Ok(None)
    }

    fn suspend(&mut self) -> io::Result<()> {
        if !term::can_suspend() {
            let why = "there is no shell behind this terminal that could go on with it".to_owned();
            self.take(What::Reply(Err(why)));
            return Ok(());
        }
        term::give_back();
        term::suspend();
        self.went_on = Some(Instant::now());
        self.term.again()?;
        let (width, height) = term::size();
        self.take(What::Resize { width, height });
        self.changed = true;
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        let due = self.drawn.is_none_or(|at| at.elapsed() >= FRAME);
        if !self.changed || !due {
            return Ok(());
        }
        self.changed = false;
        self.drawn = Some(Instant::now());
        let panics = self.panics.as_deref() == Some("draw now");
        let model = &self.model;
        self.term.draw(|frame| {
            assert!(!panics, "a panic while drawing, as the test wants");
            view::draw(model, frame);
        })
    }
}
