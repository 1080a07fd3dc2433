//! The keys of what stands over a screen: dialogs, the lines at the bottom, the help. What they do, what the
//! lower border of a dialog says of them and the documentation come from this one list.

use std::sync::LazyLock;

use tui_input::InputRequest;

use crate::tui::key::Key;

/// What may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// One of several.
    Choice,
    /// Before something changes.
    Question,
    /// All that is known of one thing.
    Facts,
    /// The filter line.
    Filter,
    /// The command line.
    Command,
    /// The help, which is a line too: typing filters it.
    Help,
}

/// What a key does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Closes it, and changes nothing.
    Close,
    /// Takes what is chosen or typed.
    Take,
    /// One up, one down: of a choice, of lines, of what was typed before.
    Up,
    Down,
    PageUp,
    PageDown,
    /// The answer that changes nothing, the other one, the one that is not selected.
    No,
    Yes,
    Other,
    /// Completes a name.
    Complete,
    /// Changes a line.
    Edit(InputRequest),
}

/// Keys that do something where something is open.
struct Binding {
    on: &'static [Open],
    act: Act,
    keys: &'static [&'static str],
    doc: &'static str,
    /// The word for the lower border; those with the same word stand together.
    hint: &'static str,
}

const fn bind(on: &'static [Open], act: Act, keys: &'static [&'static str], doc: &'static str) -> Binding {
    Binding { on, act, keys, doc, hint: "" }
}

const fn hint(binding: Binding, hint: &'static str) -> Binding {
    Binding { hint, ..binding }
}

const DIALOGS: &[Open] = &[Open::Choice, Open::Question, Open::Facts];
const LINES: &[Open] = &[Open::Filter, Open::Command];
const TYPED: &[Open] = &[Open::Filter, Open::Command, Open::Help];
const LONG: &[Open] = &[Open::Facts, Open::Help];

/// All of them; of what a border has no room for the last goes first.
const BINDINGS: &[Binding] = &[
    hint(bind(&[Open::Choice], Act::Take, &["<enter>"], "takes the one that is chosen"), "takes it"),
    hint(bind(&[Open::Question], Act::Take, &["<enter>"], "gives the answer that is selected"), "answers"),
    hint(bind(DIALOGS, Act::Close, &["<esc>", "q"], "closes it; nothing is changed"), "closes"),
    hint(bind(&[Open::Help], Act::Close, &["<esc>", "<enter>"], "closes it"), "closes"),
    bind(&[Open::Facts], Act::Take, &["<enter>"], "closes it"),
    hint(bind(&[Open::Choice], Act::Up, &["<up>", "k", "<backtab>"], "the one above, or the last"), "choose"),
    hint(
        bind(&[Open::Choice], Act::Down, &["<down>", "j", "<tab>"], "the one below, or the first"),
        "choose",
    ),
    hint(
        bind(&[Open::Question], Act::No, &["<left>", "<up>", "h", "k"], "the answer that changes nothing"),
        "choose",
    ),
    hint(bind(&[Open::Question], Act::Yes, &["<right>", "<down>", "l", "j"], "the other answer"), "choose"),
    bind(&[Open::Question], Act::Other, &["<tab>", "<backtab>"], "from one answer to the other"),
    hint(bind(LONG, Act::Up, &["<up>"], "a line up"), "scroll"),
    hint(bind(LONG, Act::Down, &["<down>"], "a line down"), "scroll"),
    bind(&[Open::Facts], Act::Up, &["k"], "a line up"),
    bind(&[Open::Facts], Act::Down, &["j"], "a line down"),
    hint(bind(LONG, Act::PageUp, &["<pageup>"], "ten lines up"), "scroll"),
    hint(bind(LONG, Act::PageDown, &["<pagedown>"], "ten lines down"), "scroll"),
    bind(LINES, Act::Close, &["<esc>"], "closes it; a filter is what it was before"),
    bind(LINES, Act::Take, &["<enter>"], "filters, or carries the command out"),
    bind(&[Open::Filter], Act::Up, &["<up>"], "the filter of before"),
    bind(&[Open::Command], Act::Up, &["<up>"], "the command of before"),
    bind(&[Open::Command], Act::Down, &["<down>"], "the command that came after"),
    bind(&[Open::Command], Act::Complete, &["<tab>"], "completes a name as far as it is clear"),
    bind(TYPED, Act::Edit(InputRequest::DeletePrevChar), &["<backspace>"], "takes the last character away"),
    bind(TYPED, Act::Edit(InputRequest::DeleteNextChar), &["<delete>"], "takes the next character away"),
    bind(TYPED, Act::Edit(InputRequest::GoToPrevChar), &["<left>"], "a character to the left"),
    bind(TYPED, Act::Edit(InputRequest::GoToNextChar), &["<right>"], "a character to the right"),
    bind(TYPED, Act::Edit(InputRequest::GoToStart), &["<home>", "<c-a>"], "to the begin"),
    bind(TYPED, Act::Edit(InputRequest::GoToEnd), &["<end>", "<c-e>"], "to the end"),
    bind(TYPED, Act::Edit(InputRequest::DeleteLine), &["<c-u>"], "takes all away"),
    bind(TYPED, Act::Edit(InputRequest::DeletePrevWord), &["<c-w>"], "takes the last word away"),
    bind(TYPED, Act::Edit(InputRequest::DeleteTillEnd), &["<c-k>"], "takes the rest away"),
];

/// All keys, read once.
static BOUND: LazyLock<Vec<(Key, &'static Binding)>> = LazyLock::new(|| {
    let keys = |binding: &'static Binding| {
        binding.keys.iter().filter_map(move |key| Some((key.parse::<Key>().ok()?, binding)))
    };
    BINDINGS.iter().flat_map(keys).collect()
});

/// What a key does in what is open; `None` for one that is typed, or does nothing.
pub(crate) fn of_open(key: Key, open: Open) -> Option<Act> {
    BOUND.iter().find(|(bound, binding)| *bound == key && binding.on.contains(&open)).map(|found| found.1.act)
}

/// What the lower border says of the keys: `Enter takes it`, `Up Down choose`.
pub(crate) fn hints(open: Open) -> Vec<String> {
    let mut words: Vec<(&str, Vec<String>)> = Vec::new();
    for binding in BINDINGS.iter().filter(|binding| binding.on.contains(&open) && !binding.hint.is_empty()) {
        let first = binding.keys.first().and_then(|key| key.parse::<Key>().ok()).map(Key::shown);
        match words.iter_mut().find(|(word, _)| *word == binding.hint) {
            Some((_, keys)) => keys.extend(first),
            None => words.push((binding.hint, first.into_iter().collect())),
        }
    }
    words.into_iter().map(|(word, keys)| format!("{} {word}", keys.join(" "))).collect()
}

/// Where bindings hold, in words.
fn places(on: &[Open]) -> String {
    let name = |open: &Open| match open {
        Open::Choice => "choices",
        Open::Question => "questions",
        Open::Facts => "an instance or a target in full",
        Open::Filter => "`/`",
        Open::Command => "`:`",
        Open::Help => "help",
    };
    on.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// All of them: the keys for people, where they hold and what they do there.
pub(crate) fn all() -> impl Iterator<Item = (Vec<String>, String, &'static str)> {
    let shown = |binding: &Binding| {
        let keys = binding.keys.iter().filter_map(|key| key.parse::<Key>().ok());
        keys.map(Key::shown).collect()
    };
    BINDINGS.iter().map(move |binding| (shown(binding), places(binding.on), binding.doc))
}

/// The key table of the documentation.
#[cfg(test)]
pub(crate) fn table() -> String {
    let row = |(keys, places, doc): (Vec<String>, String, &str)| {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        format!("| {} | {places} | {doc} |\n", keys.join(" "))
    };
    format!("| keys | where | what it does |\n| --- | --- | --- |\n{}", all().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Open; 6] =
        [Open::Choice, Open::Question, Open::Facts, Open::Filter, Open::Command, Open::Help];

    #[test]
    fn no_key_has_two_meanings_every_key_can_be_read_and_everything_can_be_closed() {
        for open in ALL {
            let mut seen = Vec::new();
            for binding in BINDINGS.iter().filter(|binding| binding.on.contains(&open)) {
                for key in binding.keys {
                    let key = key.parse::<Key>().unwrap();
                    assert!(!seen.contains(&key), "{key} in {open:?}");
                    seen.push(key);
                    assert_eq!(of_open(key, open), Some(binding.act));
                    let typed = key.typed().is_some() && TYPED.contains(&open);
                    assert!(!typed, "{key} is typed in {open:?}");
                }
            }
            assert_eq!(of_open("<esc>".parse().unwrap(), open), Some(Act::Close), "{open:?}");
        }
        assert_eq!(hints(Open::Choice), ["Enter takes it", "Esc closes", "Up Down choose"]);
    }
}
