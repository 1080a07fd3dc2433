//! Draws a figure: axes with ticks, points with error bars, a legend.

use std::fmt::Write as _;

use super::axis::Span;
use super::figure::{Figure, Point, Series, Style};

/// The picture's size, and the part of it within the axes.
const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 380.0;

/// Half of an error bar's foot, and of a mark.
const FOOT: f64 = 3.0;
const MARK: f64 = 3.5;

/// From one entry of the legend to the next.
const ENTRY: f64 = 19.0;

/// Colours that can be told apart by all (Okabe and Ito), dark ones first.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#8f8f00"];

/// Colour of the levels and of the grid.
const GREY: &str = "#666666";
const GRID: &str = "#e4e4e4";

/// Writing into a string does not fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// The picture of a figure whose points all have a place.
pub(super) fn draw(figure: &Figure) -> String {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let levels = |upright: bool| figure.levels.iter().filter(move |l| l.upright == upright).map(|l| l.at);
    let ends = |point: &Point| {
        let half = point.half.unwrap_or(0.0);
        [point.y - half, point.y, point.y + half]
    };
    let place = Place {
        x: figure.x.over(points().map(|point| point.x).chain(levels(true))),
        y: figure.y.over(points().flat_map(ends).chain(levels(false))),
    };
    let mut out = String::new();
    put!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    );
    put!(out, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#);
    put!(
        out,
        r#"<text x="{LEFT}" y="{}" font-size="14" font-weight="bold">{}</text>"#,
        TOP - 16.0,
        escaped(&figure.title)
    );
    place.axes(&mut out, figure);
    for (number, level) in figure.levels.iter().enumerate() {
        let (from, to) = if level.upright {
            let x = place.x(level.at);
            ((x, TOP), (x, BOTTOM))
        } else {
            let y = place.y(level.at);
            ((LEFT, y), (RIGHT, y))
        };
        stroke(&mut out, from, to, GREY, level_dash(number));
    }
    for (number, series) in figure.series.iter().enumerate() {
        place.series(&mut out, series, number);
    }
    legend(&mut out, figure);
    out.push_str("</svg>\n");
    out
}

/// Where values lie in the picture.
struct Place {
    x: Span,
    y: Span,
}

impl Place {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.y.share(value) * (BOTTOM - TOP)
    }

    fn axes(&self, out: &mut String, figure: &Figure) {
        for (value, text) in self.x.ticks() {
            let x = self.x(value);
            stroke(out, (x, TOP), (x, BOTTOM), GRID, "");
            put!(out, r#"<text x="{x:.1}" y="{}" text-anchor="middle">{text}</text>"#, BOTTOM + 17.0);
        }
        for (value, text) in self.y.ticks() {
            let y = self.y(value);
            stroke(out, (LEFT, y), (RIGHT, y), GRID, "");
            put!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{text}</text>"#, LEFT - 6.0, y + 4.0);
        }
        put!(
            out,
            r#"<rect x="{LEFT}" y="{TOP}" width="{}" height="{}" fill="none" stroke="black"/>"#,
            RIGHT - LEFT,
            BOTTOM - TOP
        );
        let (x, y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        put!(
            out,
            r#"<text x="{x}" y="{}" text-anchor="middle">{}</text>"#,
            BOTTOM + 40.0,
            escaped(&figure.x.label)
        );
        put!(
            out,
            r#"<text transform="translate(18 {y}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(&figure.y.label)
        );
    }

    fn series(&self, out: &mut String, series: &Series, number: usize) {
        let colour = COLOURS[number % COLOURS.len()];
        let at = |point: &Point| (self.x(point.x), self.y(point.y));
        if series.style != Style::Points && series.points.len() > 1 {
            let mut line = String::new();
            for (x, y) in series.points.iter().map(at) {
                let _ = write!(line, "{}{x:.1},{y:.1}", if line.is_empty() { "" } else { " " });
            }
            let dash = dash(series.style);
            put!(
                out,
                r#"<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>"#
            );
        }
        for point in &series.points {
            let (x, y) = at(point);
            if let Some(half) = point.half {
                let (low, high) = (self.y(point.y - half), self.y(point.y + half));
                stroke(out, (x, low), (x, high), colour, "");
                for end in [low, high] {
                    stroke(out, (x - FOOT, end), (x + FOOT, end), colour, "");
                }
            }
            mark(out, (x, y), number);
        }
    }
}

fn stroke(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, dash: &str) {
    put!(
        out,
        r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}"{dash}/>"#,
        from.0,
        from.1,
        to.0,
        to.1
    );
}

fn dash(style: Style) -> &'static str {
    if style == Style::Dashed { r#" stroke-dasharray="6 3""# } else { "" }
}

/// Each level is broken in another way.
fn level_dash(number: usize) -> &'static str {
    [
        r#" stroke-dasharray="2 2""#,
        r#" stroke-dasharray="8 3""#,
        r#" stroke-dasharray="8 3 2 3""#,
        r#" stroke-dasharray="1 5""#,
    ][number % 4]
}

/// Each series has its own shape too, for those who print without colours.
fn mark(out: &mut String, (x, y): (f64, f64), number: usize) {
    let colour = COLOURS[number % COLOURS.len()];
    let polygon = |out: &mut String, corners: &[(f64, f64)]| {
        let corners: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * MARK, y + dy * MARK)).collect();
        put!(out, r#"<polygon points="{}" fill="{colour}"/>"#, corners.join(" "));
    };
    match number % 4 {
        0 => put!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{MARK}" fill="{colour}"/>"#),
        1 => polygon(out, &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]),
        2 => polygon(out, &[(0.0, -1.2), (1.2, 1.0), (-1.2, 1.0)]),
        _ => polygon(out, &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
    }
}

fn legend(out: &mut String, figure: &Figure) {
    let (from, to) = (RIGHT + 14.0, RIGHT + 38.0);
    let mut y = TOP + 8.0;
    let name = |out: &mut String, y: f64, name: &str| {
        put!(out, r#"<text x="{}" y="{:.1}">{}</text>"#, to + 6.0, y + 4.0, escaped(name));
    };
    for (number, series) in figure.series.iter().enumerate() {
        if series.style != Style::Points {
            stroke(out, (from, y), (to, y), COLOURS[number % COLOURS.len()], dash(series.style));
        }
        mark(out, (f64::midpoint(from, to), y), number);
        name(out, y, &series.name);
        y += ENTRY;
    }
    for (number, level) in figure.levels.iter().enumerate() {
        stroke(out, (from, y), (to, y), GREY, level_dash(number));
        name(out, y, &level.name);
        y += ENTRY;
    }
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
