//! The one list of commands: keys, the `?` overlay, the footer, the `:` line and the key table of the
//! documentation all come from it.

pub(crate) mod open;

use std::sync::LazyLock;

use super::key::Key;
use super::model::link::Link;
use super::model::{Model, Screen, Source};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Do {
    /// Goes to a screen.
    Show(Screen),
    /// Moves the selection.
    Move(Step),
    /// Moves the picture of the graph.
    Pan(i32, i32),
    /// Goes into what is selected.
    Enter,
    /// Goes back.
    Back,
    /// Goes to the next pane or the next kind of thing.
    NextPane,
    /// Opens the filter line; with an argument sets it.
    Filter,
    /// Opens the choice of the sort column; with an argument sorts by it.
    Sort,
    /// Sorts by the column beside the present one.
    SortBeside(i32),
    /// Turns the order around.
    Invert,
    /// Stops and restarts the picture.
    Freeze,
    /// Draws the graph as a list and back.
    List,
    /// Opens the help.
    Help,
    /// Opens the command line.
    CommandLine,
    /// Ends a job.
    CancelJob,
    /// Changes an edge's policy.
    Policy,
    /// Changes options of an edge's policy.
    Option,
    /// Gives the job more or fewer instances.
    Scale,
    /// Chooses the job that is looked at.
    Job,
    /// Starts agents here with the demo.
    StartLocal,
    /// No more changes from here.
    ReadOnly,
    /// Draws all anew.
    Redraw,
    /// Puts the UI aside, as shells do.
    Suspend,
    /// Ends the UI.
    Quit,
    /// Ends the UI as an interrupt does.
    Interrupt,
}

/// Where the selection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The screens on which a command works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// All.
    All,
    /// These.
    Only(&'static [Screen]),
}

/// One command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    /// What it does.
    pub(crate) what: Do,
    /// Its keys, in the form of [`Key`].
    pub(crate) keys: &'static [&'static str],
    /// Its name on the `:` line.
    pub(crate) name: &'static str,
    /// Its arguments, for help.
    pub(crate) args: &'static str,
    /// What it does, in a sentence without its end.
    pub(crate) doc: &'static str,
    /// Where it works.
    pub(crate) on: On,
    /// It changes or ends something on the cluster.
    pub(crate) destructive: bool,
    /// The word for the footer; empty keeps it out. See [`Command::hint_on`].
    hint: &'static str,
}

const TABLES: On = On::Only(&[
    Screen::Edges,
    Screen::Targets,
    Screen::Routes,
    Screen::Prices,
    Screen::Scaling,
    Screen::Instances,
    Screen::Agents,
    Screen::Jobs,
]);
const GRAPH: On = On::Only(&[Screen::Graph]);
const ROUTES: On = On::Only(&[Screen::Routes, Screen::Prices]);
const SCALING: On = On::Only(&[Screen::Scaling]);
const POLICY: On = On::Only(&[Screen::Graph, Screen::Edges, Screen::Targets, Screen::Routes, Screen::Prices]);

const fn command(
    what: Do,
    keys: &'static [&'static str],
    name: &'static str,
    doc: &'static str,
    on: On,
    hint: &'static str,
) -> Command {
    Command { what, keys, name, args: "", doc, on, destructive: false, hint }
}

const fn destructive(command: Command) -> Command {
    Command { destructive: true, ..command }
}

const fn args(command: Command, args: &'static str) -> Command {
    Command { args, ..command }
}

/// All commands, in the order in which help lists them.
pub(crate) const COMMANDS: &[Command] = &[
    command(Do::Show(Screen::Graph), &["1"], "graph", "the job's graph", On::All, "graph"),
    command(Do::Show(Screen::Edges), &["2"], "edges", "the edges and their ledgers", On::All, "edges"),
    args(
        command(
            Do::Show(Screen::Routes),
            &["3"],
            "routes",
            "how edges choose their targets, and what comes of it",
            On::All,
            "routes",
        ),
        "[EDGE]",
    ),
    command(
        Do::Show(Screen::Scaling),
        &["4"],
        "scaling",
        "what vertices do and could do, what they carry, and where one more instance pays",
        On::All,
        "scale",
    ),
    command(Do::Show(Screen::Instances), &["5"], "instances", "the instances", On::All, "inst"),
    command(Do::Show(Screen::Agents), &["6"], "agents", "the agents and their machines", On::All, "agents"),
    command(Do::Show(Screen::Jobs), &["0"], "jobs", "the jobs of the cluster", On::All, "jobs"),
    command(Do::Move(Step::Up), &["<up>", "k"], "up", "one up", On::All, ""),
    command(Do::Move(Step::Down), &["<down>", "j"], "down", "one down", On::All, ""),
    command(
        Do::Move(Step::Left),
        &["<left>", "h"],
        "left",
        "to what is upstream; in a table, columns to the left",
        On::All,
        "",
    ),
    command(
        Do::Move(Step::Right),
        &["<right>", "l"],
        "right",
        "to what is downstream; in a table, columns to the right",
        On::All,
        "",
    ),
    command(Do::Move(Step::PageUp), &["<pageup>", "<c-b>"], "page-up", "a page up", On::All, ""),
    command(Do::Move(Step::PageDown), &["<pagedown>", "<c-f>"], "page-down", "a page down", On::All, ""),
    command(Do::Move(Step::First), &["g", "<home>"], "first", "to the first", On::All, ""),
    command(Do::Move(Step::Last), &["G", "<end>"], "last", "to the last", On::All, ""),
    command(Do::NextPane, &["<tab>", "<backtab>"], "pane", "from vertices to edges and back", GRAPH, ""),
    command(Do::Pan(-8, 0), &["H"], "pan-left", "the graph's left part", GRAPH, ""),
    command(Do::Pan(8, 0), &["L"], "pan-right", "the graph's right part", GRAPH, ""),
    command(Do::Pan(0, -3), &["K"], "pan-up", "the graph's upper part", GRAPH, ""),
    command(Do::Pan(0, 3), &["J"], "pan-down", "the graph's lower part", GRAPH, ""),
    command(Do::List, &["v"], "list", "the graph as a list, and back", GRAPH, ""),
    command(
        Do::Enter,
        &["<enter>"],
        "open",
        "into the selection: a vertex's instances, an edge's targets or their prices, an agent's instances, a job",
        On::All,
        "",
    ),
    command(Do::Back, &["<esc>"], "back", "back; closes a line or a dialog, clears the filter", On::All, ""),
    args(
        command(
            Do::Filter,
            &["/"],
            "filter",
            "rows with this text; `!text` without it; `busy>0.8 host=a` by column",
            On::All,
            "filter",
        ),
        "[TERMS]",
    ),
    args(command(Do::Sort, &["s"], "sort", "chooses the column to sort by", TABLES, "sort"), "[COLUMN]"),
    command(Do::SortBeside(-1), &["<lt>"], "sort-left", "sorts by the column to the left", TABLES, ""),
    command(Do::SortBeside(1), &[">"], "sort-right", "sorts by the column to the right", TABLES, ""),
    command(Do::Invert, &["i"], "invert", "turns the order around", TABLES, ""),
    command(
        Do::Freeze,
        &["<space>"],
        "freeze",
        "holds the picture still, and lets it go on; what happens meanwhile is still taken in",
        On::All,
        "freeze",
    ),
    destructive(args(
        command(
            Do::Policy,
            &["P"],
            "policy",
            "changes how the selected edge deals out its rows; options may follow the name, as `v=2`",
            POLICY,
            "policy",
        ),
        "[NAME]",
    )),
    destructive(args(
        command(
            Do::Option,
            &["O"],
            "option",
            "changes V, beta, gamma, the setting or another option of the selected edge's policy; `KEY=` takes one back",
            ROUTES,
            "option",
        ),
        "[K=V ..]",
    )),
    destructive(args(
        command(
            Do::Scale,
            &["S"],
            "scale",
            "more or fewer instances, or agents: the cluster shows its plan first",
            SCALING,
            "scale",
        ),
        "[out N | out agents N | in N | in AGENT | VERTEX=N] [--planner NAME]",
    )),
    destructive(command(Do::CancelJob, &["C"], "cancel", "ends the job", On::All, "cancel")),
    args(command(Do::Job, &[], "job", "looks at another job", On::All, ""), "NAME"),
    command(
        Do::StartLocal,
        &["D"],
        "demo",
        "without a cluster: three agents here with the demo",
        On::All,
        "demo",
    ),
    command(Do::ReadOnly, &[], "read-only", "no changes from this UI any more", On::All, ""),
    command(Do::CommandLine, &[":"], "command", "any command by its name", On::All, "command"),
    command(Do::Help, &["?"], "help", "what the keys do here; typing filters the list", On::All, "help"),
    command(Do::Redraw, &["<c-l>"], "redraw", "draws the screen anew", On::All, ""),
    command(Do::Suspend, &["<c-z>"], "suspend", "back to the shell; `fg` comes back", On::All, ""),
    command(Do::Quit, &["q"], "quit", "ends the UI; the cluster goes on", On::All, "quit"),
    command(Do::Interrupt, &["<c-c>"], "interrupt", "ends the UI, whatever is open", On::All, ""),
];

impl Command {
    /// It changes or starts something outside of this UI.
    pub(crate) fn changes(&self) -> bool {
        self.destructive || self.what == Do::StartLocal
    }

    /// It works on this screen.
    pub(crate) fn works_on(&self, screen: Screen) -> bool {
        match self.on {
            On::All => true,
            On::Only(screens) => screens.contains(&screen),
        }
    }

    /// Why it would do nothing in what is shown now; such a command is not offered either.
    pub(crate) fn why_not(&self, model: &Model) -> Option<String> {
        let (source, read_only) = (model.options.source, model.options.read_only);
        let nothing = model.picture().is_none();
        let nobody = nothing && matches!(model.link, Link::Nobody { .. } | Link::Starting);
        let why = match self.what {
            _ if source != Source::Cluster && self.changes() => {
                "nothing can be changed in what is shown here"
            }
            Do::Job if source != Source::Cluster => "another job cannot be chosen here",
            _ if read_only && self.changes() => "this UI is read-only",
            Do::ReadOnly if read_only || source != Source::Cluster => "nothing can be changed here as it is",
            Do::StartLocal if matches!(model.link, Link::Starting) => "agents are being started already",
            Do::StartLocal if !nobody => "there is a cluster already",
            Do::Show(
                Screen::Routes | Screen::Scaling | Screen::Instances | Screen::Agents | Screen::Jobs,
            )
            | Do::Enter
            | Do::Freeze
                if source == Source::Plan =>
            {
                "a plan has none: nothing runs"
            }
            Do::Show(_) if nobody => "there is no cluster",
            Do::Enter
            | Do::Filter
            | Do::Sort
            | Do::SortBeside(_)
            | Do::Invert
            | Do::Freeze
            | Do::Move(_)
            | Do::Pan(..)
            | Do::List
            | Do::NextPane
                if nothing =>
            {
                "there is nothing to show yet"
            }
            Do::Policy | Do::Option | Do::Scale | Do::CancelJob | Do::Job if nothing => "there is no job",
            Do::CancelJob | Do::Job if model.live.as_ref().is_some_and(|live| live.jobs.is_empty()) => {
                "there is no job"
            }
            Do::NextPane | Do::Pan(..) if model.graph_is_list() => "the list form has no drawing",
            Do::List if model.graph_is_list() && !model.graph.as_list => {
                "this screen is too small for the drawing"
            }
            _ => return None,
        };
        Some(why.to_owned())
    }

    /// It is listed here, in the footer and in help.
    pub(crate) fn is_offered(&self, model: &Model) -> bool {
        self.works_on(model.screen) && self.why_not(model).is_none()
    }

    /// The word for the footer of this screen; empty keeps it out.
    pub(crate) fn hint_on(&self, screen: Screen) -> &'static str {
        match (self.what, screen) {
            (Do::Enter, Screen::Edges) => "targets",
            (Do::Enter, Screen::Routes) => "prices",
            (Do::Enter, Screen::Agents) => "instances",
            _ => self.hint,
        }
    }

    /// How useful its place in the footer is, where there is no room for all: the smaller the more.
    pub(crate) fn hint_rank(&self) -> u8 {
        match self.what {
            Do::Quit | Do::Help => 0,
            Do::Option | Do::Scale => 1,
            // At 80 columns not all of the screens have room.
            Do::Show(screen) if !matches!(screen, Screen::Agents | Screen::Jobs) => 2,
            Do::StartLocal => 3,
            Do::CancelJob => 4,
            Do::Policy => 5,
            Do::Show(_) | Do::Filter => 6,
            Do::Freeze => 7,
            Do::Sort => 8,
            _ => 9,
        }
    }

    /// It stands among the first in help: what a person looks for before anything else.
    pub(crate) fn is_useful(&self) -> bool {
        !self.hint.is_empty() || matches!(self.what, Do::Enter | Do::Back | Do::NextPane)
    }

    /// Its keys for people: `Down j`.
    pub(crate) fn shown_keys(&self) -> String {
        let keys: Vec<String> =
            self.keys.iter().filter_map(|key| key.parse::<Key>().ok()).map(Key::shown).collect();
        keys.join(" ")
    }
}

/// All keys with their commands, read once: a paste is thousands of keys.
static BOUND: LazyLock<Vec<(Key, &'static Command)>> = LazyLock::new(|| {
    let keys = |command: &'static Command| {
        command.keys.iter().filter_map(move |key| Some((key.parse::<Key>().ok()?, command)))
    };
    COMMANDS.iter().flat_map(keys).collect()
});

/// The command of a key on a screen.
pub(crate) fn of_key(key: Key, screen: Screen) -> Option<&'static Command> {
    BOUND
        .iter()
        .find(|(bound, command)| *bound == key && command.works_on(screen))
        .map(|(_, command)| *command)
}

/// The command that does this.
pub(crate) fn of(what: Do) -> &'static Command {
    COMMANDS.iter().find(|command| command.what == what).unwrap_or(&COMMANDS[0])
}

/// The first of its keys, for people.
pub(crate) fn key_of(what: Do) -> String {
    of(what).keys.first().and_then(|key| key.parse::<Key>().ok()).map(Key::shown).unwrap_or_default()
}

/// The command of a name, or of the one name that begins so.
pub(crate) fn of_name(name: &str) -> Result<&'static Command, String> {
    if let Some(exact) = COMMANDS.iter().find(|command| command.name == name) {
        return Ok(exact);
    }
    let begins: Vec<&Command> =
        COMMANDS.iter().filter(|command| !name.is_empty() && command.name.starts_with(name)).collect();
    match begins[..] {
        [only] => Ok(only),
        [] => Err(format!("there is no command `{name}`; ? lists them")),
        _ => {
            let names: Vec<&str> = begins.iter().map(|command| command.name).collect();
            Err(format!("`{name}` may be {}", names.join(", ")))
        }
    }
}

/// The key table of the documentation.
#[cfg(test)]
pub(crate) fn table() -> String {
    let mut out = String::from("| keys | `:` name | where | what it does |\n| --- | --- | --- | --- |\n");
    for command in COMMANDS {
        let keys: Vec<String> = command
            .keys
            .iter()
            .filter_map(|key| key.parse::<Key>().ok())
            .map(|key| format!("`{}`", key.shown()))
            .collect();
        let place = match command.on {
            On::All => "everywhere".to_owned(),
            On::Only(screens) => screens.iter().map(|s| s.name()).collect::<Vec<_>>().join(", "),
        };
        let asks = if command.destructive { "; asks first" } else { "" };
        let name = format!("{} {}", command.name, command.args);
        out.push_str(&format!(
            "| {} | `{}` | {place} | {}{asks} |\n",
            keys.join(" "),
            name.trim_end(),
            command.doc
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings_and_every_key_can_be_read() {
        for screen in Screen::ALL {
            let mut seen: Vec<(String, &str)> = Vec::new();
            for command in COMMANDS.iter().filter(|command| command.works_on(screen)) {
                for key in command.keys {
                    let key = key.parse::<Key>().unwrap();
                    let other = seen.iter().find(|(other, _)| *other == key.to_string());
                    assert_eq!(other, None, "{} on {screen:?}", command.name);
                    seen.push((key.to_string(), command.name));
                    assert_eq!(of_key(key, screen).map(|found| found.name), Some(command.name));
                }
            }
        }
    }

    #[test]
    fn nothing_that_changes_the_cluster_is_on_a_key_that_is_hit_by_chance() {
        for command in COMMANDS.iter().filter(|command| command.destructive) {
            for key in command.keys {
                assert!(key.chars().all(char::is_uppercase), "{}: {key}", command.name);
            }
        }
    }

    #[test]
    fn names_may_be_cut_short_where_they_stay_clear() {
        assert_eq!(of_name("gra").unwrap().name, "graph");
        assert!(of_name("sort-").unwrap_err().contains("sort-left"));
        assert!(of_name("nothing").unwrap_err().contains('?'));
        assert_eq!(of_name("sort").unwrap().what, Do::Sort);
    }
}
