//! The terminal: raw mode and the alternate screen while the UI runs, and as it was on every way out.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::model::LARGEST;

/// The terminal is ours at the moment.
static HELD: AtomicBool = AtomicBool::new(false);

/// Something panicked while it was.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal, ours until this is dropped.
pub(crate) struct Term {
    terminal: Terminal<CrosstermBackend<io::Stdout>>,
    /// What is drawn on: the terminal, as far as it is not larger than anything that can be read.
    size: (u16, u16),
    mouse: bool,
}

impl Term {
    /// Takes the terminal.
    pub(crate) fn take(mouse: bool) -> io::Result<Self> {
        // With NO_COLOR crossterm leaves out bold and reverse too; our theme leaves colours out itself.
        force_color_output(true);
        give_back_on_panic();
        PANICKED.store(false, Ordering::SeqCst);
        let term = Self { terminal: of_size(size())?, size: size(), mouse };
        // From here on dropping gives back what was taken, however far it came.
        term.enter()?;
        Ok(term)
    }

    fn enter(&self) -> io::Result<()> {
        HELD.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        if self.mouse {
            execute!(io::stdout(), EnableMouseCapture)?;
        }
        Ok(())
    }

    /// Takes it again after [`give_back`], and forgets what it showed.
    pub(crate) fn again(&mut self) -> io::Result<()> {
        self.enter()?;
        self.forget()
    }

    /// Forgets what the terminal shows: the next picture is written whole.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // Ratatui's own `clear` asks the terminal where its cursor is, and one that does not answer would
        // end the UI.
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.size = size();
        self.terminal = of_size(self.size)?;
        Ok(())
    }

    /// Draws, on all of the terminal whatever its size is by now.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        if self.size != size() {
            self.forget()?;
        }
        self.terminal.draw(draw).map(|_| ())
    }
}

/// Columns and lines of the terminal that are drawn on.
pub(crate) fn size() -> (u16, u16) {
    let (width, height) = ratatui::crossterm::terminal::size().unwrap_or((80, 24));
    (width.min(LARGEST.0), height.min(LARGEST.1))
}

/// A terminal to draw on that never asks how large it is: a size without bounds would take all memory.
fn of_size((width, height): (u16, u16)) -> io::Result<Terminal<CrosstermBackend<io::Stdout>>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
    Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })
}

impl Drop for Term {
    fn drop(&mut self) {
        give_back();
    }
}

/// Makes the terminal what it was before. May be called at any time, also twice.
pub(crate) fn give_back() {
    if !HELD.swap(false, Ordering::SeqCst) {
        return;
    }
    // A terminal that is gone takes nothing any more; there is nobody to tell.
    let _ = execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

/// Something panicked since the terminal was taken: it is not ours any more.
pub(crate) fn has_panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// A panic anywhere gives the terminal back first, so that what it says can be read.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.store(true, Ordering::SeqCst);
            give_back();
            say(panic);
        }));
    });
}

/// Somebody can let this process go on again: its parent is of the same session, as a shell is. Under
/// `ssh -t HOST tuplane` there is none, and who stops there stays stopped.
pub(crate) fn can_suspend() -> bool {
    use rustix::process::{getppid, getsid};
    let own = getsid(None).ok();
    own.is_some() && getppid().and_then(|parent| getsid(Some(parent)).ok()) == own
}

/// Stops this process and its group, as Ctrl-Z does in a shell; comes back when it goes on. The terminal
/// must have been given back before.
pub(crate) fn suspend() {
    use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
    // Others of the group (a shell script that started us) stop too; our own handler takes this one.
    let _ = kill_current_process_group(Signal::TSTP);
    let _ = kill_process(getpid(), Signal::STOP);
}
