//! What the UI knows and where the person is in it. Pure data: only `update` changes it.

pub(crate) mod area;
pub(crate) mod columns;
pub(crate) mod dialog;
pub(crate) mod filter;
pub(crate) mod help;
pub(crate) mod history;
pub(crate) mod link;
pub(crate) mod picture;
pub(crate) mod route_words;
pub(crate) mod routing;
pub(crate) mod scaling;
pub(crate) mod table;
pub(crate) mod why;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::rc::Rc;

use tui_input::Input;

use super::glyph::Glyphs;
use super::theme::Theme;
use dialog::Dialog;
use filter::Filter;
use history::History;
use link::Link;
use picture::{Picture, Plan};
use table::{Order, Row};

/// More columns and lines than these are not drawn on: a terminal may say anything of its size.
pub(crate) const LARGEST: (u16, u16) = (640, 256);

/// What fills the middle of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Screen {
    /// 1.
    Graph,
    /// 2.
    Edges,
    /// One edge of 2.
    Targets,
    /// 3.
    Routes,
    /// One edge of 3.
    Prices,
    /// 4.
    Scaling,
    /// 5.
    Instances,
    /// 6.
    Agents,
    /// 0.
    Jobs,
}

impl Screen {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 9] = [
        Self::Graph,
        Self::Edges,
        Self::Targets,
        Self::Routes,
        Self::Prices,
        Self::Scaling,
        Self::Instances,
        Self::Agents,
        Self::Jobs,
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Edges => "edges",
            Self::Targets => "targets",
            Self::Routes => "routes",
            Self::Prices => "prices",
            Self::Scaling => "scaling",
            Self::Instances => "instances",
            Self::Agents => "agents",
            Self::Jobs => "jobs",
        }
    }
}

/// What was chosen when the UI was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// Nothing is changed on the cluster.
    pub(crate) read_only: bool,
    /// Colours.
    pub(crate) theme: Theme,
    /// Marks and lines.
    pub(crate) glyphs: &'static Glyphs,
    /// Where what is shown comes from.
    pub(crate) source: Source,
}

/// Where what is shown comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A cluster.
    Cluster,
    /// A job file's plan.
    Plan,
    /// A recording.
    Recording,
}

/// Where the person is in one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    /// The id of the selected row; the first one while there is none.
    pub(crate) selected: Option<String>,
    /// The order of rows.
    pub(crate) order: Order,
    /// What is left out.
    pub(crate) filter: Filter,
    /// Columns behind the first that are scrolled out to the left.
    pub(crate) left: usize,
}

/// Where the person is on the graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    /// The selected vertex.
    pub(crate) vertex: u32,
    /// The selected edge.
    pub(crate) edge: u32,
    /// The edge counts.
    pub(crate) on_edges: bool,
    /// What was panned by hand since the selection last moved.
    pub(crate) pan: (i32, i32),
    /// The list form is asked for.
    pub(crate) as_list: bool,
}

/// What instances are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Those of a vertex.
    Vertex(u32),
    /// Those on an agent.
    Agent(String),
}

/// What takes the keys.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// The screen.
    Normal,
    /// The filter line; with the filter of before.
    Filter(Input, Filter),
    /// The command line.
    Command(Input),
    /// The help: what it is filtered by, and how far it is scrolled.
    Help(Input, usize),
    /// A dialog.
    Dialog(Dialog),
}

/// A sentence at the bottom for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flash {
    /// The sentence.
    pub(crate) text: String,
    /// Something went wrong.
    pub(crate) bad: bool,
    /// Until when.
    pub(crate) until: u64,
    /// It says that this run is being ended, which means nothing any more once it has.
    pub(crate) ends: Option<u64>,
}

/// A screen to come back to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) screen: Screen,
    pub(crate) scope: Scope,
}

/// A picture as it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// What is known.
    pub(crate) picture: &'a Picture,
    /// The time that ages count to.
    pub(crate) now: u64,
    /// Marks.
    pub(crate) glyphs: &'a Glyphs,
    /// The edge whose targets are shown.
    pub(crate) edge: u32,
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) options: Options,
    /// Ms since the start, of the last event.
    pub(crate) now: u64,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) screen: Screen,
    pub(crate) scope: Scope,
    /// The edge whose targets or prices are shown.
    pub(crate) edge: u32,
    /// The run whose routes the cluster is asked for.
    pub(super) routes_of: Option<u64>,
    /// The run whose rates the cluster is asked for.
    pub(super) flow_of: Option<u64>,
    /// Where Esc leads.
    pub(crate) back: Vec<Place>,
    pub(crate) link: Link,
    /// The last picture.
    pub(crate) live: Option<Picture>,
    /// The one that is held still.
    pub(crate) frozen: Option<Picture>,
    /// Since when.
    pub(crate) frozen_at: u64,
    pub(super) history: History,
    pub(super) plan: Option<Rc<Plan>>,
    lists: BTreeMap<u8, List>,
    pub(crate) graph: Graph,
    pub(crate) mode: Mode,
    pub(crate) flash: Option<Flash>,
    /// The last lines of `:`.
    pub(super) commands: Vec<String>,
    /// The run that was asked to end, until the answer comes.
    pub(super) ending: Option<u64>,
    /// An event of a recording is taken at the moment.
    pub(super) replaying: bool,
    /// When a recording came to its end: from then on nothing grows older.
    pub(crate) played_at: Option<u64>,
    /// Its last line was cut.
    pub(crate) played_cut: bool,
    /// The last event has changed something: the screen has to be drawn anew.
    pub(crate) changed: bool,
}

impl Model {
    /// A UI that knows nothing yet.
    pub(crate) fn new(options: Options) -> Self {
        let link = match options.source {
            Source::Cluster => Link::Connecting,
            Source::Plan | Source::Recording => Link::Apart,
        };
        Self {
            options,
            now: 0,
            width: 80,
            height: 24,
            screen: Screen::Graph,
            scope: Scope::All,
            edge: 0,
            routes_of: None,
            flow_of: None,
            back: Vec::new(),
            link,
            live: None,
            frozen: None,
            frozen_at: 0,
            history: History::default(),
            plan: None,
            lists: BTreeMap::new(),
            graph: Graph::default(),
            mode: Mode::Normal,
            flash: None,
            commands: Vec::new(),
            ending: None,
            replaying: false,
            played_at: None,
            played_cut: false,
            changed: true,
        }
    }

    /// What is shown: the picture that is held still, else the last one.
    pub(crate) fn picture(&self) -> Option<&Picture> {
        self.frozen.as_ref().or(self.live.as_ref())
    }

    /// The time that ages count to: that of the freeze while the picture is held still.
    pub(crate) fn shown_now(&self) -> u64 {
        self.frozen.as_ref().map_or(self.unfrozen_now(), |_| self.frozen_at)
    }

    /// The present, which a recording's end stops.
    pub(crate) fn unfrozen_now(&self) -> u64 {
        self.played_at.unwrap_or(self.now)
    }

    /// What is shown, with the time and the marks.
    pub(crate) fn seen(&self) -> Option<Seen<'_>> {
        let picture = self.picture()?;
        Some(Seen { picture, now: self.shown_now(), glyphs: self.options.glyphs, edge: self.edge })
    }

    /// Where the person is in a screen's table.
    pub(crate) fn list(&self, screen: Screen) -> List {
        self.lists.get(&(screen as u8)).cloned().unwrap_or_default()
    }

    pub(super) fn list_mut(&mut self, screen: Screen) -> &mut List {
        self.lists.entry(screen as u8).or_default()
    }

    /// The rows of a screen's table, filtered and sorted.
    pub(crate) fn rows(&self, screen: Screen) -> Vec<Row> {
        let Some(seen) = self.seen() else { return Vec::new() };
        let list = self.list(screen);
        let columns = columns::columns(screen);
        let mut rows = columns::rows(screen, &seen);
        if screen == Screen::Instances {
            rows.retain(|row| self.in_scope(seen.picture, &row.id));
        }
        rows.retain(|row| list.filter.takes(columns, row));
        table::sort(&mut rows, columns, list.order);
        rows
    }

    fn in_scope(&self, picture: &Picture, id: &str) -> bool {
        let Some(job) = &picture.job else { return false };
        let instance = job.instances.iter().find(|instance| instance.report.instance.to_string() == id);
        instance.is_some_and(|instance| match &self.scope {
            Scope::All => true,
            Scope::Vertex(vertex) => instance.vertex == *vertex,
            Scope::Agent(agent) => job.agent_name(instance.agent) == agent,
        })
    }

    /// The index of the selected one among rows.
    pub(crate) fn selected(&self, screen: Screen, rows: &[Row]) -> usize {
        let id = match screen {
            Screen::Graph => Some(self.graph.vertex.to_string()),
            _ => self.list(screen).selected,
        };
        rows.iter().position(|row| Some(&row.id) == id.as_ref()).unwrap_or(0)
    }

    /// The graph is shown as a list: asked for, or for want of columns.
    pub(crate) fn graph_is_list(&self) -> bool {
        self.graph.as_list || self.width < 60 || self.height < 14
    }

    /// Too small for anything but one line.
    pub(crate) fn is_tiny(&self) -> bool {
        self.width < 20 || self.height < 5
    }

    /// The run that a command means: the one under the cursor where jobs are listed, else the one on the
    /// screen.
    pub(crate) fn meant_run(&self) -> Option<u64> {
        if self.screen == Screen::Jobs {
            let rows = self.rows(Screen::Jobs);
            return rows.get(self.selected(Screen::Jobs, &rows))?.id.parse().ok();
        }
        Some(self.picture()?.job.as_ref()?.summary.run)
    }

    /// The edge that a command means: on the graph the selected one, or the only unicast edge into the
    /// selected vertex.
    pub(crate) fn meant_edge(&self) -> Option<u32> {
        let job = self.picture()?.job.as_ref()?;
        match self.screen {
            // The list form selects vertices alone.
            Screen::Graph if self.graph.on_edges && !self.graph_is_list() => Some(self.graph.edge),
            Screen::Graph => {
                let into =
                    |edge: &&(usize, &picture::EdgePicture)| edge.1.to == self.graph.vertex && edge.1.unicast;
                let edges: Vec<(usize, &picture::EdgePicture)> = job.edges.iter().enumerate().collect();
                let mut found = edges.iter().filter(into);
                match (found.next(), found.next()) {
                    (Some((index, _)), None) => Some(*index as u32),
                    _ => None,
                }
            }
            Screen::Edges | Screen::Routes => {
                let rows = self.rows(self.screen);
                rows.get(self.selected(self.screen, &rows))?.id.parse().ok()
            }
            Screen::Targets | Screen::Prices => Some(self.edge),
            _ => None,
        }
        .filter(|edge| (*edge as usize) < job.edges.len())
    }
}
